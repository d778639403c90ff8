#!/usr/bin/env bash
set -euo pipefail
cd /app

sort -o sailings.txt sailings.txt
