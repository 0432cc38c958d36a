"""The host side of the kernels on NumPy arrays: plans and launch table are the project's own, the device is the CPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipeline.backends import hog_rules
from pipeline.backends.gpu import hog_plan, launch, wls_plan
from pipeline.backends.gpu.kernel_table import TABLE
from pipeline.features.layout import HogLayout
from tests.cuda_on_host.build import HostModule


def poisoned(shape: Any, dtype: Any) -> np.ndarray:
    """Return an array with every bit set: NaN, or -1. What a kernel leaves unwritten shows."""
    out = np.empty(shape, dtype=dtype)
    out.reshape(-1).view(np.uint8).fill(0xFF)
    return out


@dataclass
class Host:
    """Launches kernels on the CPU under one build mode and schedule.

    `edit` changes the source text of a file before it is built, and `replace_launch` a launch: the mutation test
    plants faults with them. `common` are macros that specialisations share unless they say otherwise, so that
    fewer are built.
    """

    mode: str = "plain"
    schedule: str = "forward"
    seed: int = 0
    concurrent: bool = False
    edit: Any = None
    replace_launch: Any = None
    common: dict = field(default_factory=dict)
    modules: dict = field(default_factory=dict)

    def run(self, plan: launch.Launch, *arguments: Any) -> None:
        """As launch.run."""
        if self.replace_launch is not None:
            plan, arguments = self.replace_launch(plan, arguments)
        bound = launch.bind(plan, arguments)
        if 0 in plan.grid:
            return
        function = self.module(plan).get_function(plan.kernel)
        function(plan.grid, plan.block, bound, shared_mem=plan.shared)

    def module(self, plan: launch.Launch) -> HostModule:
        """Return the built specialisation."""
        file = TABLE[plan.kernel].file
        definitions = launch.macros(**(self.common.get(file, {}) | dict(plan.macros)))
        key = (file, definitions)
        if key not in self.modules:
            code = launch.source(file)
            if self.edit is not None:
                code = self.edit(file, code)
            options = launch.options(file, definitions)
            self.modules[key] = HostModule(
                code, options, self.mode, self.schedule, self.seed, self.concurrent
            )
        return self.modules[key]

    def hog(
        self,
        pixels: np.ndarray,
        layout: HogLayout,
        norm: str = "L2-Hys",
        sqrt: bool = False,
        dtype: str = "float32",
        split: bool = False,
    ) -> np.ndarray:
        """Return the features of a batch; `split` takes the way of images too large for shared memory."""
        n = len(pixels)
        definitions = hog_plan.specialise(pixels.dtype, layout, norm, sqrt, dtype)
        images, cotangents = self.prepare(pixels, layout, sqrt, dtype)
        features = poisoned((n, layout.n_features), dtype)
        fused = None if split else hog_plan.fused(layout, definitions, n)
        if fused is not None:
            per_block = hog_plan.images_per_block(layout, hog_plan.scale_bytes(definitions))
            stride = hog_plan.slot_stride(layout, per_block)
            size = (*layout.image_shape, *layout.cells)
            self.run(fused, images, cotangents, features, n, *size, per_block, stride)
            return features
        histograms = self.cell_histograms(images, layout, definitions, cotangents)
        blocks = n * layout.blocks[0] * layout.blocks[1]
        self.run(hog_plan.blocks(layout, definitions, n), histograms, features, blocks, *layout.cells)
        return features

    @staticmethod
    def prepare(
        pixels: np.ndarray, layout: HogLayout, sqrt: bool, dtype: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return pixels and cotangents as the kernels take them."""
        images = np.ascontiguousarray(pixels, dtype=hog_plan.kernel_type(pixels.dtype))
        real = hog_plan.real_type(pixels.dtype, sqrt, dtype)
        return images, hog_rules.cotangents(layout.orientations, real)

    def cell_histograms(
        self, images: np.ndarray, layout: HogLayout, definitions: Any, cotangents: np.ndarray
    ) -> np.ndarray:
        """Return the mean magnitudes: float32 (n cells, orientations)."""
        n = len(images)
        cells = n * layout.cells[0] * layout.cells[1]
        histograms = poisoned((cells, layout.orientations), np.float32)
        plan = hog_plan.cells(layout, definitions, n)
        self.run(plan, images, cotangents, histograms, cells, *layout.image_shape, *layout.cells)
        return histograms

    def componentwise(self, X: np.ndarray, center: np.ndarray, W: np.ndarray, R: np.ndarray) -> np.ndarray:
        """Return the sums x r, x w, x^2 w: float64 (3, J, p)."""
        (n, p), J = X.shape, W.shape[1]
        plan = wls_plan.componentwise(X.dtype, n, p, J)
        partial = poisoned((plan.parts, 3, J, p), np.float64)
        sums = poisoned((3, J, p), np.float64)
        self.run(plan.partial, X, center, W, R, partial, n, p, J, plan.rows_per_block)
        self.run(plan.finish, partial, sums, plan.parts, sums.size)
        return sums
