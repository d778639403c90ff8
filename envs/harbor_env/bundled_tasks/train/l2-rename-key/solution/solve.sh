#!/usr/bin/env bash
set -euo pipefail
cd /app

sed -i 's/"hours":/"hours_total":/' parts.json
