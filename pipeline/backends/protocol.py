"""What every backend folder offers: the modules named here have the same functions in all three.

A backend is a Python package; its attributes are the array namespace, transfers, and the modules ``preprocess``,
``hog``, ``pca`` and ``wls``; ``scores``, ``clock`` and ``gather_meanwhile`` are None where it has none. A test compares
the signatures of the folders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from pipeline.config import Preprocess
    from pipeline.features.layout import HogLayout

Array = Any  # an array of the backend's own namespace, or its stand-in for a matrix too large for the device


class WlsFit(NamedTuple):
    """J weighted-least-squares fits that share their columns."""

    coef: Array  # float64 (q, J)
    intercept: Array  # float64 (J,)
    rank: Array  # int (J,), in host memory: numerical rank of each weighted, centred design
    ladder: Array  # int (J,), in host memory: 0 Cholesky; 1 to 3 with l2 raised tenfold that often; 4 minimum norm


class Sums(NamedTuple):
    """Sums over rows from which weighted least squares follow. Those of other rows are added to them field by field.

    The first four are of all classes, or None where they were not asked for; `gram` is of a range of classes.
    """

    xr: Array  # float64 (q, J): sum_i x_ik r_ij
    xw: Array  # float64 (q, J): sum_i x_ik w_ij
    sr: Array  # float64 (J,): sum_i r_ij
    sw: Array  # float64 (J,): sum_i w_ij
    # (classes, q, q), float64 or 32: a triangle of sum_i w_ij x_i x_i'; of many columns `cpu` has float64 (classes,
    # numbers), see backends/triangle.py; `reference` keeps rows
    gram: Any = None
    xxw: Array = None  # float64 (q, J): sum_i x_ik^2 w_ij, for componentwise fits


class ComponentwiseSums(NamedTuple):
    """Weighted sums over rows of the centred columns, for every feature and class."""

    xr: Array  # float64 (p, J): sum_i x_ik r_ij
    xw: Array  # float64 (p, J): sum_i x_ik w_ij
    xxw: Array  # float64 (p, J): sum_i x_ik^2 w_ij


class Pca(NamedTuple):
    """Principal components, in host memory."""

    mean: np.ndarray  # float64 (p,)
    components: (
        np.ndarray
    )  # float64 (k, p): unit rows; zero where the variance is no more than rounding noise
    variances: np.ndarray  # float64 (k,), largest first
    total: float  # variance of all components together, also of those that were not kept


class PreprocessModule(Protocol):
    """``preprocess.py``."""

    def apply(self, pixels: Array, step: Preprocess) -> Array:
        """Apply one preprocessing step to each image of a batch.

        Parameters
        ----------
        pixels : ndarray, shape (n, h, w)
            Grayscale images: finite real numbers.
        step : Preprocess
            Which step, and its parameters.

        Returns
        -------
        ndarray, shape (n, h, w)
            The values scikit-image's function of that name gives:

            - none: `pixels` itself;
            - stretch (``rescale_intensity``): the input's dtype; the two percentiles of each image become the
              ends of the dtype's range (0 to 255 for uint8; 0 to 1 for floats, -1 to 1 where the lower percentile
              is negative);
            - gaussian (``preserve_range=True``, edges repeated): float32, in the input's own range;
            - equalize (``equalize_hist``) and clahe (``equalize_adapthist``): float32 from 0 to 1, whatever the
              input. HoG normalises by block, so the range itself hardly matters to it.

            A constant image gives finite values. float16 is computed in float32.

        Raises
        ------
        ValueError
            If the batch is not (n, h, w), not real, not finite, or (clahe) holds floats outside -1 to 1.
        """

    def require(self, step: Preprocess) -> None:
        """Raise BackendError if this machine lacks what the step needs, before any image is read."""


class HogModule(Protocol):
    """``hog.py``."""

    def hog(
        self,
        pixels: Array,
        layout: HogLayout,
        block_norm: str,
        transform_sqrt: bool,
        dtype: str,
        out: Array | None = None,
    ) -> Array:
        """Return features (n, layout.n_features) of a batch (n, h, w) or (n, h, w, channels), in `out` if given."""

    def hog_image(self, pixels: Array, layout: HogLayout, transform_sqrt: bool) -> Array:
        """Return a picture (n, h, w) of the cell histograms of each image."""


class WlsModule(Protocol):
    """``wls.py``."""

    rough: Any  # ``wls_rough`` of the cpu backend: fits that begin with Gram matrices in less precision; else None
    classes_together: int  # at most, for which a product of two columns is worked out once

    def column_moments(self, X: Array, sample_weight: Array | None = None) -> tuple[Array, Array]:
        """Return weighted mean and population variance (float64, (p,)) of each column of X (n, p)."""

    def gather(self, X: Array, columns: np.ndarray, center: Array) -> Array:
        """Return X[:, columns] - center[columns], (n, q), in a form that the other functions take."""

    def fit(
        self, X: Array, center: Array, W: Array, R: Array, l2: float, gram_precision: str = "full"
    ) -> WlsFit:
        """Minimise sum_i w_ij (r_ij / w_ij - b_j - (x_i - center)'beta_j)^2 + l2 |beta_j|^2 for each class j."""

    def sums(
        self,
        X: Array,
        center: Array,
        W: Array,
        R: Array,
        classes: slice,
        totals: bool,
        gram_precision: str = "full",
    ) -> Sums:
        """Return the Gram matrices of a range of classes, and with `totals` the other sums, of all classes."""

    def residual_sums(
        self, X: Array, center: Array, W: Array, R: Array, classes: slice, coef: Array, intercept: Array
    ) -> tuple[Array, Array]:
        """Return (X - center)' e (q, classes) and the sums of e = r - w f (classes,) for fits f of those classes."""

    def solve(self, sums: Sums, l2: float, precision: str) -> tuple[WlsFit, Any]:
        """Return the fits of the classes whose sums are given, and the factors that :meth:`refine` takes.

        `precision` is the type in which X was: it says how exact the Gram matrices are. They may be overwritten. The
        factors are None where there is nothing to refine.
        """

    def refine(self, factors: Any, xr: Array, sr: Array, found: WlsFit) -> WlsFit:
        """Return the fits improved by one step for the sums that :meth:`residual_sums` gave."""

    def classes_at_once(self, n_classes: int, q: int, whole: bool = False) -> int:
        """Return how many Gram matrices of q columns to ask for at a time; `whole`: of rows as they lie."""

    def over_classes(
        self,
        n_classes: int,
        q: int,
        at_once: int | None,
        work: Callable[[slice], None],
        whole: bool = False,
    ) -> None:
        """Call work(classes) for ranges that cover the classes, of `at_once` or what :meth:`classes_at_once` says."""

    def componentwise_sums(self, X: Array, center: Array, W: Array, R: Array) -> ComponentwiseSums:
        """Return the sums from which the best single feature of each class follows."""

    def apply(self, X: Array, center: Array, coef: Array, intercept: Array) -> Array:
        """Return (X - center) @ coef + intercept, shape (n, J), in the dtype of X."""

    def frequencies(
        self, p: int, n_components: int, gamma: float, seed: int, index: int, dtype: Any
    ) -> Array:
        """Return R (p, n_components) ~ N(0, 2 gamma) of draw `index`."""

    def random_features(
        self, X: Array, center: Array, gamma: float, n_components: int, seed: int, index: int
    ) -> Array:
        """Return cos((X - center) @ R + b), shape (n, n_components), with R and b drawn from (seed, index)."""


class PcaModule(Protocol):
    """``pca.py``."""

    def fit(self, X: Array, n_components: int | None, share: float | None) -> Pca:
        """Return the `n_components` directions of largest variance, or those that explain more than a `share` of it."""

    def transform(self, X: Array, mean: Array, components: Array, out: Array | None = None) -> Array:
        """Return (X - mean) components', shape (n, k), in the dtype of X; in `out` if given."""


class ScoresModule(Protocol):
    """``scores.py``: what a round does to the scores (n, J), fused. A backend without one has the loop's array code."""

    def targets(self, codes: np.ndarray, n_classes: int) -> Array:
        """Return class numbers (n,) in the form that the other functions take as `labels`."""

    def working_response(
        self, F: Array, labels: Array, weight: Array, z_max: float, clip: str, floor: float
    ) -> tuple[Array, Array]:
        """Return weights W and weighted responses R of one round, (n, J) each."""

    def advance(
        self,
        F: Array,
        values: Array,
        factor: float,
        labels: Array,
        weight: Array,
        rules: tuple[float, str, float] | None = None,
    ) -> tuple[Array, Array, tuple[Array, Array] | None]:
        """Return F + factor (values - their row mean), and (2,): its largest absolute score, its log-loss sum.

        Third what :meth:`working_response` returns of them by its last three parameters, `rules`; or None, if there are
        none or the backend does not work it out at the same time.
        """


class ClockModule(Protocol):
    """``clock.py``: time on a device. A backend that works where the program runs has none."""

    def mark(self) -> Any:
        """Record an event behind the work queued so far."""

    def seconds(self, begin: Any, end: Any) -> float:
        """Return the seconds between two events."""

    def finish(self) -> None:
        """Wait until the device has done everything."""

    def memory(self) -> int:
        """Return the bytes of device memory taken, at most."""

    def start_profiler(self) -> None:
        """Tell an attached profiler to begin."""

    def stop_profiler(self) -> None:
        """Tell an attached profiler to stop."""


class Backend(Protocol):
    """A backend package."""

    name: str
    xp: Any
    clock: ClockModule | None
    scores: ScoresModule | None
    # begins what ``wls.gather`` does on threads that are idle; what it returns ends it
    gather_meanwhile: Callable[[Array, np.ndarray, Array], Callable[[], Array]] | None
    preprocess: PreprocessModule
    hog: HogModule
    wls: WlsModule
    pca: PcaModule

    def put(self, array: np.ndarray) -> Array:
        """Copy a host array to where the backend works; an array that is there already is returned as it is."""

    def resident(self, matrix: Any) -> Array:
        """Return a matrix (n, p) where the backend works, that leaves its device if work on it finds no room there.

        A host matrix must not be changed while the result is in use; a device array must be kept by nobody else.
        """

    def in_room(self, work: Callable[[], Any], what: str) -> Any:
        """Return work(), called again with more room if a device's memory runs out in it; `what` says what it is for.

        `work` must leave nothing behind when it fails.
        """

    def get(self, array: Array) -> np.ndarray:
        """Copy an array of the backend to the host; a host array is returned as it is."""

    def holds(self, array: Any) -> bool:
        """Tell whether `array` is where the backend works and out of NumPy's sight."""

    def rows(self, array: Array, index: np.ndarray) -> Array:
        """Return array[index] for a host array of row numbers, contiguous."""

    def map_images(
        self,
        pixels: np.ndarray,
        index: np.ndarray | None,
        work: Callable[[Array, Array], Any],
        width: int,
        dtype: str,
        size: int,
        advance: Callable[[int, int], None] | None = None,
    ) -> Array:
        """Return the matrix (n, width), where the backend works, that `work` writes from the images.

        Parameters
        ----------
        pixels : (N, h, w), or (N, h, w, channels), in host memory, possibly memory-mapped
        index : numbers of the images wanted, or None for all
        work : work(images, out) gets some of the images where the backend works, and the rows of the matrix to write
            for them; it must keep neither
        size : images at a time, unless the backend knows better
        advance : told (images done, images in all) now and then
        """

    def first_not_finite(self, X: Array) -> int | None:
        """Return the first row of X (n, p) that holds NaN or infinity, or None."""

    def threads(self, count: int) -> Any:
        """Return a context manager that limits the backend to `count` threads (0: every core)."""
