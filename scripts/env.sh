# Sourced by scripts/run and scripts/test: makes .venv beside pyproject.toml and installs this project into it, once,
# and again when pyproject.toml or constraints.txt have changed. Usage: source env.sh; ensure_env "" | "[test,gpu-ci]"

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
venv="$root/.venv"

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3.13 python3.12 python3.11 python3 python; do
        [ -n "$candidate" ] || continue
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not ((3, 11) <= sys.version_info < (3, 14)))' \
            >/dev/null 2>&1; then
            echo "$candidate"
            return 0
        fi
    done
    echo "No suitable Python found. This program needs Python 3.11, 3.12 or 3.13 with the venv module." >&2
    echo "Install one (Debian and Ubuntu: apt install python3 python3-venv), or name one: PYTHON=/path/to/python3.12" >&2
    return 2
}

ensure_env() {
    local extras="$1" stamp wanted python
    # the extras hold all of the plain set, so their stamp serves both
    wanted="$(cat "$root/pyproject.toml" "$root/constraints.txt" | cksum) at $root"
    for stamp in "$venv/.installed[test,gpu-ci]" "$venv/.installed$extras"; do
        if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && "$venv/bin/python" -c '' 2>/dev/null; then
            return 0
        fi
    done
    if ! "$venv/bin/python" -c '' 2>/dev/null; then
        python="$(find_python)" || return 2
        echo "Making $venv with $("$python" --version) ..." >&2
        "$python" -m venv --clear "$venv" || return 2
    fi
    echo "Installing into $venv (once; a few minutes) ..." >&2
    if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        -c "$root/constraints.txt" -e "$root$extras" >&2; then
        echo "The installation failed; the lines above say why. Is this machine online?" >&2
        return 2
    fi
    # The tests look up names in cuCIM and need none of what it would bring along: CUDA libraries, several GB.
    if [[ "$extras" == *gpu-ci* && "$(uname -s)" == Linux ]] &&
        ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
            -c "$root/constraints.txt" --no-deps cucim-cu12 >&2; then
        echo "The installation of cucim-cu12 failed; the lines above say why." >&2
        return 2
    fi
    rm -f "$venv"/.installed*
    echo "$wanted" >"$venv/.installed$extras"
}
