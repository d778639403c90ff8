#!/usr/bin/env bash
set -euo pipefail
cd /app

grep -c ERROR exposures.log > answer.txt
