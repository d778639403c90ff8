#!/usr/bin/env bash
set -euo pipefail
cd /app

grep '^BARLEY=' decks.env | cut -d= -f2 > answer.txt
