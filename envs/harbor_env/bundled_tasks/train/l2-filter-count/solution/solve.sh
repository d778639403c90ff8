#!/usr/bin/env bash
set -euo pipefail
cd /app

python3 - > answer.txt <<'EOF'
import csv
rows = list(csv.DictReader(open("visits.csv")))
print(sum(r["wing"] == "bronze" and int(r["visitors"]) > 19 for r in rows))
EOF
