#!/usr/bin/env bash
set -euo pipefail
cd /app

sort -u sales.txt | wc -l > answer.txt
