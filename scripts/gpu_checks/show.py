"""The timed sections of check_gpu.py as tables for people."""

from __future__ import annotations

from typing import Any

# Sections whose names begin so share a table.
STAGES = "stages, "
TRANSFERS = "transfers, "
FULL = "learner full, "


def table(sections: dict[str, Any]) -> str:
    """Return the timed sections as text: one line per stage and number of images, then the rest."""
    lines = [f"{'stage':<44} {'images':>7} {'ms':>11} {'GB/s':>9} {'share':>9} {'GFLOP/s':>9}"]
    rows: dict[str, list[str]] = {}
    for title, section in sections.items():
        for prefix in (STAGES, TRANSFERS, FULL):
            if title.startswith(prefix):
                images = title.removeprefix(prefix).removesuffix(" images")
                for name, values in section.items():
                    if isinstance(values, dict) or str(values).startswith(("not run", "--without")):
                        shown = title if name == "result" else name  # of a section that was cut short
                        rows.setdefault(shown, []).append(_row(shown, images, values))
    lines += [line for same in rows.values() for line in same]
    lines += ["share: of the bandwidth of a copy on the device; of copies to and from the device, of the bus"]
    for title in ("bandwidths", "against the cpu"):
        for name, values in sections.get(title, {}).items():
            if isinstance(values, dict):
                shown = "  ".join(f"{key} {value:.4g}" for key, value in values.items())
                lines.append(f"{name:<44} {shown}")
            elif isinstance(values, float) and name != "seconds":
                lines.append(f"{name:<44} {values:.4g}")
    return "\n".join(lines)


def _row(name: str, images: str, values: Any) -> str:
    begin = f"{name:<44} {images:>7}"
    if not isinstance(values, dict):
        return f"{begin} {values}"
    share = values.get("share of copy", values.get("share of bus", 0.0))
    flops = values.get("GFLOP/s", 0.0)
    end = f"{flops:>9.4g}" if flops else ""
    return f"{begin} {values['ms']:>11.4g} {values['GB/s']:>9.4g} {share:>9.1%} {end}".rstrip()
