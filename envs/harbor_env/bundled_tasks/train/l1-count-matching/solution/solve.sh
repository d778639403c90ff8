#!/usr/bin/env bash
set -euo pipefail
cd /app

grep -c INFO visits.log > answer.txt
