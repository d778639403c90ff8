#!/usr/bin/env bash
set -euo pipefail
cd /app

wc -l < orders.txt > answer.txt
