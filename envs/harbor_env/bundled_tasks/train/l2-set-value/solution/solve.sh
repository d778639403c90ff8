#!/usr/bin/env bash
set -euo pipefail
cd /app

python3 - <<'EOF'
import json
config = json.load(open("visits.json"))
config["printing"]["limit"] = 107
json.dump(config, open("visits.json", "w"), indent=2)
EOF
