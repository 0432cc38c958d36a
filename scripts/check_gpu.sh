#!/usr/bin/env bash
# Check the gpu backend on a machine with a GPU, with what is installed there, without a network, below 8 minutes.
#     bash scripts/check_gpu.sh [options] [folder for the results]
#     bash scripts/check_gpu.sh --help     the options, and what the exit status means
# PYTHON names the interpreter that has CuPy. compute-sanitizer comes with the CUDA toolkit: without it the run is
# not complete, the verdict says so and the exit status is 3, unless --without-sanitizer is given.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONUNBUFFERED=1
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

# check_gpu.py keeps to its time itself; this is for a GPU or a library that hangs.
timeout --kill-after=4 475 "${PYTHON:-python3}" scripts/check_gpu.py "$@"
status=$?
if [ "$status" -ge 124 ]; then echo "VERDICT: NOT FINISHED, ended from outside (status $status)."; fi
exit "$status"
