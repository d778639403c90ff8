#!/usr/bin/env bash
set -euo pipefail
cd /app

sort -n firings.txt | head -n 1 > answer.txt
