#!/usr/bin/env bash
set -euo pipefail
cd /app

python3 - > answer.txt <<'EOF'
import json
for r in json.load(open("studio.json")):
    if r["firing"] == 544:
        print(r["piece"])
EOF
