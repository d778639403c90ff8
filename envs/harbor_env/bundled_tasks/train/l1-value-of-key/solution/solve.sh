#!/usr/bin/env bash
set -euo pipefail
cd /app

grep '^CITY=' bikes.env | cut -d= -f2 > answer.txt
