#!/usr/bin/env bash
# Check the gpu backend on a machine with a GPU, with what is installed there, without a network, below 8 minutes.
#     bash scripts/check_gpu.sh [options] [folder for the results]
#     bash scripts/check_gpu.sh --help     the options, and what the exit status means
# The Python is $PYTHON if given, else the .venv that scripts/run makes, else python3; it needs this program's packages
# and CuPy. compute-sanitizer comes with the CUDA toolkit: without it the run is not complete, the verdict says so and
# the exit status is 3, unless --without-sanitizer is given.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONUNBUFFERED=1
python="${PYTHON:-}"
if [ -z "$python" ]; then
    if [ -x .venv/bin/python ]; then python=.venv/bin/python; else python=python3; fi
fi
if ! command -v "$python" >/dev/null; then
    echo "VERDICT: NOTHING WAS RUN, there is no Python called $python: make the project's .venv with" \
        "bash scripts/run doctor, or name one, as in PYTHON=/path/to/python bash scripts/check_gpu.sh"
    exit 2
fi
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

# check_gpu.py keeps to its time itself; this is for a GPU or a library that hangs.
timeout --kill-after=4 475 "$python" scripts/check_gpu.py "$@"
status=$?
if [ "$status" -ge 124 ]; then echo "VERDICT: NOT FINISHED, ended from outside (status $status)."; fi
exit "$status"
