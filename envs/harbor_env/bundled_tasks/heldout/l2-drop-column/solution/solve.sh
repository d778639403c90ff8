#!/usr/bin/env bash
set -euo pipefail
cd /app

cut -d, -f6 --complement commissions.csv > /tmp/less && cp /tmp/less commissions.csv
