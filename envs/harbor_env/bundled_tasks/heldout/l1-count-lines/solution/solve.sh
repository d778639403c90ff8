#!/usr/bin/env bash
set -euo pipefail
cd /app

wc -l < domes.txt > answer.txt
