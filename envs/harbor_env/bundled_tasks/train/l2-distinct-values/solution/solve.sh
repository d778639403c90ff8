#!/usr/bin/env bash
set -euo pipefail
cd /app

python3 - > answer.txt <<'EOF'
import csv
rows = list(csv.DictReader(open("beds.csv")))
print(len({r["plant"] for r in rows}))
EOF
