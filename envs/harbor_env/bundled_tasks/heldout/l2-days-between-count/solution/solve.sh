#!/usr/bin/env bash
set -euo pipefail
cd /app

python3 - > answer.txt <<'EOF'
import csv
rows = list(csv.DictReader(open("plates.csv")))
print(sum("2019-11-14" <= r["taken_on"] <= "2019-12-14" for r in rows))
EOF
