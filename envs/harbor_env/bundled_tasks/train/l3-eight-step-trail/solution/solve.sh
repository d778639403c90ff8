#!/usr/bin/env bash
set -euo pipefail
cd /app

cat loaves/focaccia-morning.txt

cat loaves/brioche-morning.txt

cat loaves/bagel-noon.txt

cat loaves/scone-noon.txt

cat loaves/baguette-dawn.txt

cat loaves/strudel-evening.txt

cat loaves/bun-noon.txt

echo $((73 + 93 + 81 + 16 + 76 + 73 + 82)) > answer.txt
