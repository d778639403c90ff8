#!/usr/bin/env bash
mkdir -p /logs/verifier
exec python3 -I -B /tests/grade.py /app /tests/expected.json /logs/verifier/reward.json
