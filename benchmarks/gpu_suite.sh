#!/usr/bin/env bash
# Everything that is measured on a GPU, in under nine minutes: one process per part, each with its own limit of seconds;
# what a part has measured is written as it goes. Options are those of gpu_suite.py:
#   bash benchmarks/gpu_suite.sh --official_mae CHECKOUT --official_dino CHECKOUT
#   bash benchmarks/gpu_suite.sh --tiny          # toy shapes on a CPU, to see that it works
# All five parts in one call leave too little time for what compiles longest; some of them get more of it each:
#   PARTS="dino-s mae-l" bash benchmarks/gpu_suite.sh ...
# Results: suite.json and suite.md in $OUT, or in benchmarks/results/gpu-NAME. Where the checkout has lost its history,
# COMMIT=... says which one it is; PYTHON=... chooses the interpreter.
set -u
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/..${PYTHONPATH:+:$PYTHONPATH}"
python=${PYTHON:-python}

if [[ " $* " == *" --tiny "* ]]; then
    exec "$python" "$here/gpu_suite.py" "$@"
fi
status=0
read -ra parts <<<"${PARTS:-mae-b cifar dino-s supervised-b mae-l}"
for part in "${parts[@]}"; do
    timeout -k 3 $((520 / ${#parts[@]})) "$python" "$here/gpu_suite.py" "$@" --part "$part" || {
        echo "$part: stopped or failed; what it had measured is kept" >&2
        status=1
    }
done
exit $status
