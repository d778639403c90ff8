#!/usr/bin/env bash
set -euo pipefail
cd /app

python3 - > answer.txt <<'EOF'
import csv
rows = list(csv.DictReader(open("trips.csv")))
totals = {}
for r in rows:
    totals[r["rider"]] = totals.get(r["rider"], 0) + float(r["fare"])
print("\n".join(sorted(totals, key=totals.get, reverse=True)[:3]))
EOF
