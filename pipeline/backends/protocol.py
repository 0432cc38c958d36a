"""What every backend folder offers. The three folders hold the same files with the same functions.

A backend is a Python package; its attributes are the array namespace, the two transfers and three modules:
``preprocess``, ``hog`` and ``wls``. A test compares the signatures of the folders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np

    from pipeline.config import Preprocess
    from pipeline.features.layout import HogLayout

Array = Any  # an array of the backend's own namespace


class WlsFit(NamedTuple):
    """J weighted-least-squares fits that share their columns."""

    coef: Array  # float64 (q, J)
    intercept: Array  # float64 (J,)
    rank: Array  # int (J,): numerical rank of each weighted, centred design
    ladder: Array  # int (J,): 0 Cholesky; 1 to 3 Cholesky after raising l2 tenfold that often; 4 eigendecomposition


class ComponentwiseSums(NamedTuple):
    """Weighted sums over rows of the centred columns, for every feature and class."""

    xr: Array  # float64 (p, J): sum_i x_ik r_ij
    xw: Array  # float64 (p, J): sum_i x_ik w_ij
    xxw: Array  # float64 (p, J): sum_i x_ik^2 w_ij


class PreprocessModule(Protocol):
    """``preprocess.py``."""

    def apply(self, pixels: Array, step: Preprocess) -> Array:
        """Apply one preprocessing step to a batch (n, h, w)."""


class HogModule(Protocol):
    """``hog.py``."""

    def hog(
        self, pixels: Array, layout: HogLayout, block_norm: str, transform_sqrt: bool, dtype: str
    ) -> Array:
        """Return features (n, layout.n_features) of a batch (n, h, w) or (n, h, w, channels)."""

    def hog_image(self, pixels: Array, layout: HogLayout, transform_sqrt: bool) -> Array:
        """Return a picture (n, h, w) of the cell histograms of each image."""


class WlsModule(Protocol):
    """``wls.py``."""

    def column_moments(self, X: Array, sample_weight: Array | None = None) -> tuple[Array, Array]:
        """Return weighted mean and population variance (float64, (p,)) of each column of X (n, p)."""

    def gather(self, X: Array, columns: np.ndarray, center: Array) -> Array:
        """Return X[:, columns] - center[columns] as a contiguous array (n, q)."""

    def fit(self, X: Array, center: Array, W: Array, R: Array, l2: float) -> WlsFit:
        """Minimise sum_i w_ij (r_ij / w_ij - b_j - (x_i - center)'beta_j)^2 + l2 |beta_j|^2 for each class j."""

    def componentwise_sums(self, X: Array, center: Array, W: Array, R: Array) -> ComponentwiseSums:
        """Return the sums from which the best single feature of each class follows."""

    def apply(self, X: Array, center: Array, coef: Array, intercept: Array) -> Array:
        """Return (X - center) @ coef + intercept, shape (n, J), in the dtype of X."""

    def random_features(
        self, X: Array, center: Array, gamma: float, n_components: int, seed: int, index: int
    ) -> Array:
        """Return cos((X - center) @ R + b), shape (n, n_components), with R and b drawn from (seed, index)."""


class Backend(Protocol):
    """A backend package."""

    name: str
    xp: Any
    preprocess: PreprocessModule
    hog: HogModule
    wls: WlsModule

    def put(self, array: np.ndarray) -> Array:
        """Copy a host array to where the backend works."""

    def get(self, array: Array) -> np.ndarray:
        """Copy an array of the backend to the host."""

    def threads(self, count: int) -> Any:
        """Return a context manager that limits the backend to `count` threads (0: every core)."""
