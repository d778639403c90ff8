#!/usr/bin/env bash
set -euo pipefail
cd /app

python3 - <<'EOF'
import json
import csv
rows = list(csv.DictReader(open("decks.csv")))
totals = {}
for r in rows:
    totals[r["port"]] = totals.get(r["port"], 0) + int(r["crates"])
json.dump(totals, open("totals.json", "w"))
EOF
