"""The launch table: which kernels there are, and what arguments each takes.

Arguments of a CUDA kernel are raw bytes: a 64-bit integer passed where the kernel reads 32 bits is not an error but
a wrong number. So each kernel's parameter list is stated here once, :mod:`pipeline.backends.gpu.launch` converts
and checks every argument by it, and a test compares it with the compiled kernels.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# Whether a * b + c may become one operation with one rounding. In HoG it may not, so that a GPU rounds as the tests
# on a CPU do. (A bin is decided by one product and a comparison, which leave nothing to fuse; the usual test with two
# products would misplace 494 of the 261,120 gradients of 8-bit images where orientations are divisible by 4.) Sums of
# products gain from contraction: one rounding less, twice the speed.
CONTRACTION = {"hog.cu": False, "wls.cu": True}


class Argument(NamedTuple):
    """One parameter of a kernel."""

    name: str
    ctype: str  # as in the source: a C type, or a macro that a specialisation defines as one
    pointer: bool
    constant: bool  # the kernel only reads what the pointer points to


class Kernel(NamedTuple):
    """One kernel: the file it is in and its parameters in order."""

    file: str
    arguments: tuple[Argument, ...]


def _argument(text: str) -> Argument:
    found = re.fullmatch(r"(const )?([\w ]+?)(\*)? (\w+)", text.strip())
    assert found is not None, text
    return Argument(found[4], found[2], found[3] is not None, found[1] is not None)


def _kernel(file: str, arguments: str) -> Kernel:
    return Kernel(file, tuple(_argument(text) for text in arguments.split(",")))


TABLE = {
    "hog_fused": _kernel(
        "hog.cu",
        "const PIXEL* pixels, const REAL* cotangents, OUT* features, int n_images, int height, int width, "
        "int cells_down, int cells_across, int images_per_block, int slot_stride",
    ),
    "hog_cells": _kernel(
        "hog.cu",
        "const PIXEL* pixels, const REAL* cotangents, float* histograms, long long n_cells, int height, "
        "int width, int cells_down, int cells_across",
    ),
    "hog_blocks": _kernel(
        "hog.cu",
        "const float* histograms, OUT* features, long long n_blocks, int cells_down, int cells_across",
    ),
    "gather_center": _kernel(
        "wls.cu", "const REAL* X, const int* columns, const REAL* center, REAL* out, int n, int p, int q"
    ),
    "center_scale": _kernel(
        "wls.cu",
        "const REAL* X, const REAL* center, const REAL* W, REAL* out, int n, int q, int n_classes, "
        "int first_class, int batch",
    ),
    "componentwise_partial": _kernel(
        "wls.cu",
        "const REAL* X, const REAL* center, const REAL* W, const REAL* R, double* partial, int n, int p, "
        "int n_classes, int rows_per_block",
    ),
    "componentwise_finish": _kernel(
        "wls.cu", "const double* partial, double* sums, int n_parts, long long n_sums"
    ),
    "scaled_normal": _kernel(
        "wls.cu",
        "REAL* out, long long count, double scale, unsigned int key0, unsigned int key1, unsigned int index",
    ),
    "cosine": _kernel("wls.cu", "REAL* values, const REAL* shift, long long count, int q"),
    "working_response": _kernel(
        "wls.cu",
        "const REAL* F, const int* labels, const REAL* weight, REAL* W, REAL* R, double* losses, int n, "
        "int n_classes, REAL z_max, REAL floor, int keep_gradient",
    ),
    "log_loss": _kernel(
        "wls.cu",
        "const REAL* F, const int* labels, const REAL* weight, double* losses, int n, int n_classes",
    ),
    "update_scores": _kernel(
        "wls.cu",
        "const REAL* F, const REAL* values, REAL* updated, REAL* largest, int n, int n_classes, REAL factor",
    ),
    "sum_in_order": _kernel("wls.cu", "const double* values, double* total, int count"),
}
