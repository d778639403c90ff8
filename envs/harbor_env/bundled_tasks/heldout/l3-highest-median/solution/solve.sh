#!/usr/bin/env bash
set -euo pipefail
cd /app

python3 - > answer.txt <<'EOF'
import statistics
import csv
rows = list(csv.DictReader(open("firings.csv")))
groups = {}
for r in rows:
    groups.setdefault(r["glaze"], []).append(float(r["quote"]))
print(max(groups, key=lambda g: statistics.median(groups[g])))
EOF
