#!/usr/bin/env bash
set -euo pipefail
cd /app

python3 - <<'EOF'
import json

def merge(a, b):
    for key, value in b.items():
        both = isinstance(value, dict) and isinstance(a.get(key), dict)
        a[key] = merge(a[key], value) if both else value
    return a

merged = merge(json.load(open("orders.json")), json.load(open("tills.json")))
json.dump(merged, open("merged.json", "w"), indent=2)
EOF
