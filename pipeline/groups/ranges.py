"""Range checks of settings, and sizes as people write them."""

from __future__ import annotations


def check(ok: bool, setting: str, found: object, expected: str) -> None:
    """Raise a ValueError that names the setting, unless `ok`; the command line tells it in one line."""
    if not ok:
        raise ValueError(f"{setting} must be {expected}, not {found!r}")


def whole(setting: str, found: int, low: int, high: int) -> None:
    """Check a whole number against its bounds."""
    check(found >= low, setting, found, f"at least {low}")
    check(found <= high, setting, found, f"at most {high:,}")


UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 2**20, "GiB": 2**30}


def size_in_bytes(text: str) -> int | None:
    """Return the bytes that a size such as "1.5GB" or "800 MB" says; None if it says none."""
    number = text.rstrip("BkMGTib").strip()
    unit = text[len(text.rstrip("BkMGTib")) :] or "B"
    try:
        value = float(number)
    except ValueError:
        return None
    return int(value * UNITS[unit]) if unit in UNITS and 0.0 < value < 1e15 else None
