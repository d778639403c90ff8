#!/usr/bin/env bash
set -euo pipefail
cd /app

wc -w < exhibits.txt > answer.txt
