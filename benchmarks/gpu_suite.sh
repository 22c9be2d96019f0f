#!/usr/bin/env bash
# Everything that is measured on a GPU, in under nine minutes: one process per part, each with its own limit of seconds;
# what a part has measured is written as it goes. Options are those of gpu_suite.py:
#   bash benchmarks/gpu_suite.sh --official_mae CHECKOUT --official_dino CHECKOUT
#   bash benchmarks/gpu_suite.sh --tiny          # toy shapes on a CPU, to see that it works
# Some of the five parts:
#   PARTS="dino-s mae-l" bash benchmarks/gpu_suite.sh ...
# First all are compiled beside each other, in at most two and a half minutes; then one after the other is timed, and
# finds what it compiles in torch's cache. PHASE=compile or PHASE=measure does one of both, where TORCHINDUCTOR_CACHE_DIR
# says where the cache stays.
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
read -ra parts <<<"${PARTS:-mae-b mae-l dino-s supervised-b cifar}"
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$(mktemp -d)}
if [[ ${PHASE:-compile} == compile ]]; then
    for part in "${parts[@]}"; do
        TORCHINDUCTOR_COMPILE_THREADS=3 timeout -k 3 150 "$python" "$here/gpu_suite.py" "$@" --part "$part" --compile ||
            echo "$part: not compiled in its time; goes on while it is timed" >&2 &
    done
    wait
fi
if [[ ${PHASE:-measure} == measure ]]; then
    for part in "${parts[@]}"; do
        timeout -k 3 $((380 / ${#parts[@]})) "$python" "$here/gpu_suite.py" "$@" --part "$part" || {
            echo "$part: stopped or failed; what it had measured is kept" >&2
            status=1
        }
    done
fi
exit $status
