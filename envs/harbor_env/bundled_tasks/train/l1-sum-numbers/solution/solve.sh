#!/usr/bin/env bash
set -euo pipefail
cd /app

awk '{s += $1} END {print s}' loaves.txt > answer.txt
