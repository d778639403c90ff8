#!/usr/bin/env bash
set -euo pipefail
cd /app

sort -n loaves.txt | tail -n 1 > answer.txt
