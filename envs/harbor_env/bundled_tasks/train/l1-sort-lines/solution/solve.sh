#!/usr/bin/env bash
set -euo pipefail
cd /app

sort -o archive.txt archive.txt
