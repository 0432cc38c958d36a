"""Principal component analysis as a scikit-learn transformer, over whichever backend is chosen."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from pipeline import backends

KINDS = [np.float64, np.float32]  # features that are taken as they are
SHARE = 0.95  # of the variance, where nothing is said of how many components to keep: that of reduce=pca


class PcaReducer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Features projected onto their directions of largest variance.

    The components are those of ``sklearn.decomposition.PCA(svd_solver="full")``, signs included, with any backend.

    Parameters
    ----------
    components : int or None
        Number of components to keep, at most min(rows, features).
    variance : float or None
        Keep the fewest components that explain more than this share of the variance, above 0 and below 1; with None for
        both 0.95, with both an error.
    backend : {'cpu', 'gpu', 'reference'}
        Who computes. With ``gpu``, X may be a CuPy array: what `transform` returns then stays on the device.
    dtype : {'float32', 'float64'}
        Type of the reduced features and of `components_`. The components are computed in float64.

    Attributes
    ----------
    components_ : ndarray, shape (n_components_, n_features_in_)
        Directions of unit length, by falling variance. A direction in which the rows vary by no more than rounding
        noise is zero.
    mean_ : float64 (n_features_in_,)
    explained_variance_ : float64 (n_components_,), with n - 1 in the denominator
    explained_variance_ratio_ : float64 (n_components_,), shares of the variance of all features
    n_components_, n_features_in_ : int

    References
    ----------
    Jolliffe, I. T., Principal Component Analysis, 2nd edition, Springer 2002.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.outer(np.arange(5.0), [3.0, 4.0]) + [1.0, 0.0]
    >>> PcaReducer(variance=0.95, dtype="float64").fit_transform(X).ravel()
    array([-10.,  -5.,   0.,   5.,  10.])
    """

    def __init__(
        self,
        components: int | None = None,
        variance: float | None = None,
        backend: str = "cpu",
        dtype: str = "float32",
    ) -> None:
        self.components = components
        self.variance = variance
        self.backend = backend
        self.dtype = dtype

    def fit(self, X: Any, y: Any = None) -> PcaReducer:
        """Find the components.

        Parameters
        ----------
        X : array_like, shape (n, p), n at least 2
        y : object
            Ignored.

        Raises
        ------
        ValueError
            If X is no matrix of finite numbers, or the parameters do not say how many components to keep, or say
            more than X has.
        """
        self._check_parameters()
        home = backends.get(self.backend)
        X = self._matrix(X, reset=True)
        share = SHARE if self.components is None and self.variance is None else self.variance
        if self.components is not None and self.components > min(X.shape):
            raise ValueError(
                f"components={self.components} cannot be found in {X.shape[0]} rows of {X.shape[1]} features: "
                f"give at most {min(X.shape)}"
            )
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # an overflow is told by the error
                found = home.pca.fit(home.put(X), self.components, share)
        except np.linalg.LinAlgError as error:
            raise ValueError(
                f"X cannot be reduced ({error}): its numbers are too large to be squared; scale the features"
            ) from error
        self.mean_ = found.mean
        self.components_ = found.components.astype(self.dtype, copy=False)
        self.explained_variance_ = found.variances
        self.explained_variance_ratio_ = found.variances / (found.total or 1.0)
        return self

    def transform(self, X: Any) -> Any:
        """Return the reduced features (n, n_components_) of the rows of X (n, p); on the device if X is there.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before ``fit``.
        ValueError
            If X is no matrix of finite numbers with as many features as at ``fit``.
        """
        check_is_fitted(self)
        home = backends.get(self.backend)
        away = home.holds(X)
        found = home.pca.transform(home.put(self._matrix(X, reset=False)), *self.placed())
        found = found.astype(self.dtype, copy=False)
        return found if away else home.get(found)

    def placed(self) -> tuple[Any, Any]:
        """Return `mean_` and `components_` where the backend works."""
        home = backends.get(self.backend)
        return home.put(self.mean_), home.put(self.components_)

    @property
    def n_components_(self) -> int:
        """Number of components kept."""
        return self.components_.shape[0]

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def feature_importances(self, of_components: np.ndarray, coef: np.ndarray | None = None) -> np.ndarray:
        """Return the importance of each original feature, float64 (p,), summing to 1 (or all 0).

        Parameters
        ----------
        of_components : (k,) importance of each component: its standard deviation times the size of the score's
            derivative by it, as ``LogitBoostClassifier.feature_importances_`` has it
        coef : (J, k) coefficients of a linear model of the components; None if it is not linear

        Notes
        -----
        The same rule, standard deviation times size of the derivative, for feature f of a reduced model. C are the
        components (k, p) and v their variances. What the model sees of f has variance s_f^2 = sum_k v_k C_kf^2. A
        linear model has the coefficients coef C, so f has the importance s_f mean_j |sum_k coef_jk C_kf|, whatever the
        learner that made it, also a sparse one (componentwise). Otherwise g_k = of_components_k / sqrt(v_k) is the root
        mean square derivative by component k; random features have random directions, so the derivatives by
        different components are uncorrelated: s_f sqrt(sum_k C_kf^2 g_k^2).
        """
        check_is_fitted(self)
        C = self.components_.astype(np.float64)
        spread = np.sqrt(self.explained_variance_ @ C**2)
        if coef is not None:
            slope = np.abs(np.asarray(coef, dtype=np.float64) @ C).mean(axis=0)
        else:
            deviation = np.sqrt(self.explained_variance_)
            by_component = np.divide(of_components, deviation, out=np.zeros(len(C)), where=deviation > 0.0)
            slope = np.sqrt(by_component**2 @ C**2)
        value = spread * slope
        return value / value.sum() if value.sum() > 0.0 else value

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the fitted reducer as arrays and a JSON-able header, for a file without pickle."""
        check_is_fitted(self)
        arrays = {
            "mean": self.mean_,
            "components": self.components_,
            "explained_variance": self.explained_variance_,
            "explained_variance_ratio": self.explained_variance_ratio_,
        }
        return arrays, {k: v for k, v in self.get_params().items() if k != "backend"}

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> PcaReducer:
        """Return the fitted reducer that :meth:`state` described.

        Raises
        ------
        KeyError, TypeError, ValueError
            If one is missing, or does not fit the others.
        """
        found = cls(**header)
        found._check_parameters()
        components = arrays["components"]
        if components.ndim != 2 or components.dtype != found.dtype or 0 in components.shape:
            raise ValueError(
                f"components: it is {components.dtype} {components.shape}, a matrix of {found.dtype} is expected"
            )
        k, p = components.shape
        for name, size in {"mean": p, "explained_variance": k, "explained_variance_ratio": k}.items():
            array = arrays[name]
            if array.dtype != np.float64 or array.shape != (size,):
                raise ValueError(
                    f"{name}: it is {array.dtype} {array.shape}, the rest asks for float64 ({size},)"
                )
        if not all(np.isfinite(array).all() for array in arrays.values()):
            raise ValueError("reduce: its arrays must be finite")
        if found.components not in (None, k):
            raise ValueError(f"reduce: components={found.components}, but there are {k}")
        found.mean_, found.components_, found.n_features_in_ = arrays["mean"], components, p
        found.explained_variance_ = arrays["explained_variance"]
        found.explained_variance_ratio_ = arrays["explained_variance_ratio"]
        return found

    def _check_parameters(self) -> None:
        if self.components is not None and self.variance is not None:
            raise ValueError(
                f"components={self.components!r} and variance={self.variance!r} cannot both be given: leave one out"
            )
        count, share = self.components, self.variance
        if count is not None and (
            not isinstance(count, numbers.Integral) or isinstance(count, bool) or count < 1
        ):
            raise ValueError(f"components must be an integer of at least 1, not {count!r}")
        if share is not None and (
            not isinstance(share, numbers.Real) or isinstance(share, bool) or not 0.0 < float(share) < 1.0
        ):
            raise ValueError(f"variance must be a share above 0 and below 1, not {share!r}")
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype must be one of float32, float64, not {self.dtype!r}")

    def _matrix(self, X: Any, reset: bool) -> Any:
        """Return X (n, p), checked; where it lies."""
        home = backends.get(self.backend)
        if not home.holds(X):
            return validate_data(
                self, X, dtype=KINDS, order="C", reset=reset, ensure_min_samples=2 if reset else 1
            )
        if X.ndim != 2 or X.shape[0] < (2 if reset else 1) or X.shape[1] == 0 or X.dtype not in KINDS:
            raise ValueError(
                f"X must be a matrix (rows, features) of float32 or float64 with at least 2 rows and 1 feature to "
                f"fit, not {X.dtype} {X.shape}"
            )
        bad = home.first_not_finite(X)
        if bad is not None:
            raise ValueError(f"X holds NaN or infinity in row {bad}; remove the row or mend its features")
        if reset:
            self.n_features_in_ = X.shape[1]
        elif X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but PcaReducer is expecting {self.n_features_in_} features as input"
            )
        return X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags
