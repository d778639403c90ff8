#!/usr/bin/env bash
set -euo pipefail
cd /app

cut -d, -f4 plates.csv | tail -n +2 | sort | uniq -c | sort -n | tail -n 1 | awk '{print $2}' > answer.txt
