#!/usr/bin/env bash
set -euo pipefail
cd /app

sed -i 's/maritime/marble/g' loans.txt
