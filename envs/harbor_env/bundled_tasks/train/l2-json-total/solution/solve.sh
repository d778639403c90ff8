#!/usr/bin/env bash
set -euo pipefail
cd /app

python3 - > answer.txt <<'EOF'
import json
rows = json.load(open("loans.json"))
print(sum(r["visitors"] for r in rows if r["guide"] == "Ines"))
EOF
