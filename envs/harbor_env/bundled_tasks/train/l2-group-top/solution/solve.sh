#!/usr/bin/env bash
set -euo pipefail
cd /app

python3 - > answer.txt <<'EOF'
import csv
rows = list(csv.DictReader(open("compost.csv")))
totals = {}
for r in rows:
    totals[r["bed"]] = totals.get(r["bed"], 0) + int(r["crates"])
print(max(totals, key=totals.get))
EOF
