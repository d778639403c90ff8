#!/usr/bin/env bash
set -euo pipefail
cd /app

ls orders/*.txt | wc -l > answer.txt
