#!/usr/bin/env bash
set -euo pipefail
cd /app

python3 - > answer.txt <<'EOF'
import csv
rows = list(csv.DictReader(open("manifests.csv")))
team = {r["captain"]: r["team"] for r in csv.DictReader(open("crossings.csv"))}
totals = {}
for r in rows:
    key = team[r["captain"]]
    totals[key] = totals.get(key, 0) + int(r["crates"])
print(max(totals, key=totals.get))
EOF
