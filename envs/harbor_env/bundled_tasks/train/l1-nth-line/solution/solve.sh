#!/usr/bin/env bash
set -euo pipefail
cd /app

sed -n 13p batches.txt > answer.txt
