#!/usr/bin/env bash
set -euo pipefail
cd /app

python3 - > answer.txt <<'EOF'
import csv
rows = list(csv.DictReader(open("manifests.csv")))
print(sum(r["port"] == "cove" and int(r["crates"]) > 16 for r in rows))
EOF
