"""Planted kernel bugs. Each is one exact change of a ``.cu`` file, or of a launch; each must be caught by some rung."""

from __future__ import annotations

import dataclasses
from typing import Any

from pipeline.backends.gpu.launch import Launch


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One planted bug.

    Attributes
    ----------
    kind : what sort of mistake it is
    file : the ``.cu`` file that is changed, or "" for a change of the launch
    old, new : the text that is replaced; it must occur
    which : which occurrence is replaced
    kernel : the kernel whose launch is changed
    shared : bytes added to its shared memory
    swap : places of two arguments that are exchanged
    grid : blocks added to its grid
    options : a compiler option, and what replaces it
    """

    kind: str
    file: str = ""
    old: str = ""
    new: str = ""
    which: int = 0
    kernel: str = ""
    shared: int = 0
    swap: tuple[int, int] | None = None
    grid: int = 0
    options: tuple[str, str] | None = None

    def edit(self, file: str, code: str) -> str:
        """Return the source with the bug in it."""
        if file != self.file or not self.old:
            return code
        parts = code.split(self.old)
        if len(parts) < self.which + 2:
            raise LookupError(f"{self.file} no longer holds {self.old!r}")
        before, after = parts[: self.which + 1], parts[self.which + 1 :]
        return self.old.join(before) + self.new + self.old.join(after)

    def change_launch(self, plan: Launch, arguments: tuple[Any, ...]) -> tuple[Launch, tuple[Any, ...]]:
        """Return the launch with the bug in it."""
        if plan.kernel != self.kernel:
            return plan, arguments
        grid = (plan.grid[0] + self.grid, *plan.grid[1:])
        plan = dataclasses.replace(plan, shared=plan.shared + self.shared, grid=grid)
        if self.swap is not None:
            changed = list(arguments)
            a, b = self.swap
            changed[a], changed[b] = changed[b], changed[a]
            arguments = tuple(changed)
        return plan, arguments


BARRIER = "    __syncthreads();\n"

MUTANTS = {
    "none": Mutant("no bug"),
    # hog_fused
    "no barrier between cells and norms": Mutant("missing barrier", "hog.cu", BARRIER, ""),
    "no barrier between norms and writing": Mutant("missing barrier", "hog.cu", BARRIER, "", which=1),
    "barrier for half the threads": Mutant(
        "divergent barrier", "hog.cu", BARRIER, "    if (threadIdx.x < 64) __syncthreads();\n"
    ),
    "another barrier for each half": Mutant(
        "divergent barrier",
        "hog.cu",
        BARRIER,
        "    if (threadIdx.x < 64) { __syncthreads(); } else {\n __syncthreads(); }\n",
    ),
    "threads without a cell leave before the barrier": Mutant(
        "early return",
        "hog.cu",
        "    for (int slot = threadIdx.x;",
        "    if (threadIdx.x >= images * cells) return;\n    for (int slot = threadIdx.x;",
    ),
    "histograms are not zeroed": Mutant(
        "missing zeroing",
        "hog.cu",
        "for (int bin = 0; bin < ORIENTATIONS; ++bin) histogram[bin * bin_stride] = 0.f;",
        "",
    ),
    "neighbouring cells share a histogram": Mutant(
        "non-atomic +=", "hog.cu", "histograms + slot, slot_stride", "histograms + slot / 2 * 2, slot_stride"
    ),
    "one column of pixels too many": Mutant(
        "off by one", "hog.cu", "col < left + CELL_COLS; ++col", "col <= left + CELL_COLS; ++col"
    ),
    "the last row reads below the image": Mutant(
        "off by one", "hog.cu", "row > 0 && row < height - 1", "row > 0 && row <= height - 1"
    ),
    "the first column reads before the image": Mutant(
        "missing bounds check", "hog.cu", "col > 0 && col < width - 1", "col < width - 1"
    ),
    "clip of L2-Hys": Mutant(
        "wrong constant", "hog.cu", "#define CLIP ((REAL)0.2)", "#define CLIP ((REAL)0.25)"
    ),
    "epsilon of the norms": Mutant("wrong constant", "hog.cu", "1e-5)", "1e-3)"),
    "edges count as below": Mutant(
        "wrong comparison", "hog.cu", "x <= cotangents[k] * y", "x < cotangents[k] * y"
    ),
    "doubt about an edge is too narrow": Mutant(
        "wrong constant", "hog.cu", "#define NEAR 4e-15", "#define NEAR 4e-18"
    ),
    "only the lower edge of a bin is doubted": Mutant(
        "missing case", "hog.cu", "(bin < EDGES && near_edge", "(bin > EDGES && near_edge"
    ),
    "shared memory a float too small": Mutant("shared too small", kernel="hog_fused", shared=-4),
    "one block too few": Mutant("grid too small", kernel="hog_fused", grid=-1),
    "height and width exchanged": Mutant("swapped arguments", kernel="hog_fused", swap=(4, 5)),
    "products are contracted": Mutant("contraction", "hog.cu", options=("--fmad=false", "--fmad=true")),
    "histogram in local memory": Mutant(
        "local memory",
        "hog.cu",
        "    for (int bin = 0; bin < ORIENTATIONS; ++bin) histogram[bin * bin_stride] = 0.f;",
        "    float local[ORIENTATIONS];\n    for (int bin = 0; bin < ORIENTATIONS; ++bin) "
        "{ histogram[bin * bin_stride] = 0.f; local[bin] = image[bin]; }\n"
        "    histogram[0] = local[image[0] % ORIENTATIONS] * 0.f;",
    ),
    # hog_cells, hog_blocks
    "no barrier before cells are written out": Mutant("missing barrier", "hog.cu", BARRIER, "", which=2),
    "cells of the last, partial block": Mutant(
        "missing bounds check",
        "hog.cu",
        "(int)min((long long)blockDim.x, n_cells - first)",
        "(int)blockDim.x",
    ),
    "even distance between bins": Mutant("shared overrun", "hog.cu", "blockDim.x | 1;", "blockDim.x + 2;"),
    "rows of blocks of later images": Mutant(
        "wrong index", "hog.cu", "block % blocks / blocks_across, col", "block / blocks_across, col", which=1
    ),
    "scales written beyond their array": Mutant(
        "off by one",
        "hog.cu",
        "scales[threadIdx.x] = block_scale",
        "scales[threadIdx.x + 1] = block_scale",
    ),
    # gather_center, center_scale
    "threads past the last column": Mutant("missing bounds check", "wls.cu", "    if (k >= q) return;\n", ""),
    "center of the gathered place": Mutant("wrong index", "wls.cu", "center[column]", "center[k]"),
    "int where size_t is needed": Mutant(
        "int overflow",
        "wls.cu",
        "X[(size_t)i * p + column]",
        "X[(size_t)(i * p * 1048576 / 1048576) + column]",
    ),
    "weights of the first class for all": Mutant(
        "wrong index", "wls.cu", "sqrt(weights[j])", "sqrt(weights[0])"
    ),
    # componentwise
    "no barrier before the groups are added": Mutant(
        "missing barrier",
        "wls.cu",
        "        __syncthreads();\n        if (thread < WIDTH)",
        "        if (thread < WIDTH)",
    ),
    "no barrier after the groups are added": Mutant(
        "missing barrier", "wls.cu", "        }\n        __syncthreads();\n    }\n}", "        }\n    }\n}"
    ),
    "totals are not zeroed": Mutant("missing zeroing", "wls.cu", "totals[i] = 0;", ";"),
    "all parts write to the first": Mutant(
        "race between blocks", "wls.cu", "((size_t)blockIdx.y * KINDS + kind)", "((size_t)kind)"
    ),
    "classes past the last": Mutant("missing bounds check", "wls.cu", "j < classes ? w[j] : (REAL)0", "w[j]"),
    "sums in float only": Mutant("precision", "wls.cu", "double total = totals[", "float total = totals["),
    "the last row of a run": Mutant("off by one", "wls.cu", "i < stop; ++i", "i < stop - 1; ++i"),
    "sums of the last part": Mutant("off by one", "wls.cu", "part < n_parts", "part < n_parts - 1"),
    # random features
    "a generator of nine rounds": Mutant("wrong constant", "wls.cu", "round < 10", "round < 9"),
    "numbers past the end": Mutant(
        "missing bounds check", "wls.cu", "if (first + pair + 1 < count) out", "if (first < count) out"
    ),
    "shift of the row": Mutant("wrong index", "wls.cu", "shift[k % q]", "shift[k / q]"),
    # scores
    "mask of a whole warp": Mutant(
        "wrong mask", "wls.cu", "return ones << (threadIdx.x % 32 / LANES * LANES);", "return ones;"
    ),
    "a step of the row's sum is missing": Mutant(
        "missing reduction step", "wls.cu", "distance = LANES / 2", "distance = LANES / 4", which=1
    ),
    "no barrier in the sum of a block": Mutant(
        "missing barrier",
        "wls.cu",
        "        __syncthreads();\n        if ((int)threadIdx.x < half)",
        "        if ((int)threadIdx.x < half)",
    ),
    "rows past the last": Mutant(
        "missing bounds check", "wls.cu", "    if (i >= n) return;", "    if (i > n) return;"
    ),
    "the weight is forgotten": Mutant("missing factor", "wls.cu", "w * weight[i]", "w"),
    "the clip keeps the weight": Mutant("wrong rule", "wls.cu", "w = fabs(r) / z_max", "w = w"),
    "the label of the first row": Mutant(
        "wrong index", "wls.cu", "labels[i], weight[i], top", "labels[0], weight[i], top", which=1
    ),
    # sum_in_order
    "a value past the last": Mutant(
        "off by one", "wls.cu", "i < count; i += blockDim.x", "i <= count; i += blockDim.x"
    ),
    # races that leave every number right: only ThreadSanitizer sees them
    "idle threads touch the last sum": Mutant(
        "race of equal values",
        "wls.cu",
        "    if (k >= n_sums) return;\n",
        "    if (k >= n_sums) { sums[n_sums - 1] += 0; return; }\n",
    ),
    "every block writes the first row": Mutant(
        "race of equal values",
        "wls.cu",
        "    const REAL middle = center[column];\n",
        "    const REAL middle = center[column];\n    out[k] = X[column] - middle;\n",
    ),
}
