#!/usr/bin/env bash
set -euo pipefail
cd /app

python3 - > answer.txt <<'EOF'
import csv
rows = list(csv.DictReader(open("kilns.csv")))
stock = 134
for r in sorted(rows, key=lambda r: r["date"]):
    stock += int(r["change"])
    if stock < 0:
        print(r["date"])
        break
EOF
