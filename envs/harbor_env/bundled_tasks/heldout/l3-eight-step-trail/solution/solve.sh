#!/usr/bin/env bash
set -euo pipefail
cd /app

cat exposures/moon-zeta.txt

cat exposures/asteroid-delta.txt

cat exposures/binary-beta.txt

cat exposures/nova-gamma.txt

cat exposures/cluster-beta.txt

cat exposures/quasar-gamma.txt

cat exposures/nebula-epsilon.txt

echo $((71 + 66 + 12 + 21 + 52 + 76 + 66)) > answer.txt
