#!/usr/bin/env bash
# Everything that is measured on a GPU, in under nine minutes; gpu_suite.py says what and how, and has the options:
#   bash benchmarks/gpu_suite.sh --official_mae CHECKOUT --official_dino CHECKOUT
#   bash benchmarks/gpu_suite.sh --tiny          # toy shapes on a CPU, to see that it works
# Results: suite.json and suite.md in $OUT, or in benchmarks/results/gpu-NAME. Where the checkout has lost its history,
# COMMIT=... says which one it is; PYTHON=... chooses the interpreter.
set -u
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/..${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python}" "$here/gpu_suite.py" "$@"
