#!/usr/bin/env bash
set -euo pipefail
cd /app

sed -i '/^$/d' loaves.txt
