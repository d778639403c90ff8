#!/usr/bin/env bash
set -euo pipefail
cd /app

python3 - > answer.txt <<'EOF'
from datetime import date
import csv
rows = list(csv.DictReader(open("plots.csv")))
totals = {}
for r in rows:
    weekday = date.fromisoformat(r["picked_on"]).strftime("%A")
    totals[weekday] = totals.get(weekday, 0) + int(r["crates"])
print(max(totals, key=totals.get))
EOF
