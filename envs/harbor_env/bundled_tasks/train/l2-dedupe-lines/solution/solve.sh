#!/usr/bin/env bash
set -euo pipefail
cd /app

awk '!seen[$0]++' visits.txt > /tmp/once && cp /tmp/once visits.txt
