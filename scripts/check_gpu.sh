#!/usr/bin/env bash
# Check the gpu backend on a machine with a GPU, with what is installed there, without a network. At most
# 210 s for the checks, 30 s for each of nine runs of compute-sanitizer: 8 minutes.
#     bash scripts/check_gpu.sh [folder for the results]
# PYTHON names the interpreter that has CuPy. compute-sanitizer comes with the CUDA toolkit; without it its part is
# reported as not run.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out="${1:-${OUT:-runs/check_gpu}}"
python="${PYTHON:-python3}"
mkdir -p "$out"
export PYTHONUNBUFFERED=1
failed=0

command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

timeout 210 "$python" scripts/check_gpu.py --out "$out" 2>&1 | tee "$out/check_gpu.log"
[ "${PIPESTATUS[0]}" = 0 ] || failed=1

# tool, planted fault, exit status wanted: 0 without a fault, 9 when the tool reports one
sanitize() {
    local tool="$1" fault="$2" wanted="$3" begin=$SECONDS status verdict=ok
    timeout 30 "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 5 \
        "$python" scripts/check_gpu.py --sanitize "$fault" >"$out/sanitizer-$tool-$fault.log" 2>&1
    status=$?
    if [ "$status" != "$wanted" ]; then
        verdict=FAILED
        failed=1
    fi
    echo "compute-sanitizer $tool, fault $fault: status $status, wanted $wanted: $verdict, $((SECONDS - begin)) s"
}

sanitizer="$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -1)"
if [ -z "$sanitizer" ]; then
    echo "compute-sanitizer: NOT RUN, it is not installed"
else
    # Compiles the kernels, which CuPy keeps on disk: under the sanitizer only the planted faults are compiled.
    timeout 30 "$python" scripts/check_gpu.py --sanitize none >"$out/sanitizer-warm.log" 2>&1
    for tool in memcheck racecheck synccheck initcheck; do sanitize "$tool" none 0; done
    sanitize memcheck bounds 9
    sanitize racecheck race 9
    sanitize synccheck barrier 9
    sanitize initcheck uninitialised 9
fi 2>&1 | tee "$out/sanitizer.log"
grep -q FAILED "$out/sanitizer.log" && failed=1

if [ "$failed" = 0 ]; then echo "all checks passed"; else echo "some checks FAILED"; fi
exit "$failed"
