"""One weighted least squares for each class, from sums over rows: the order of the steps, whoever gives the sums."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from pipeline.backends.protocol import Array, Sums, WlsFit
from pipeline.spans import part

if TYPE_CHECKING:
    from pipeline.backends.protocol import WlsModule


class Source(Protocol):
    """Who holds the rows."""

    @property
    def n_classes(self) -> int:
        """Number of classes J."""

    @property
    def n_columns(self) -> int:
        """Number of columns q."""

    @property
    def precision(self) -> str:
        """Type of the rows: "float32" or "float64"."""

    @property
    def whole(self) -> bool:
        """Whether the columns are those of rows as they lie, not gathered or made for a round."""

    @property
    def at_once(self) -> int | None:
        """Classes in one request; None: what suits the backend."""

    @property
    def rough(self) -> bool:
        """Whether to begin with rough Gram matrices, which the backend has means for."""

    def sums(self, classes: slice, totals: bool, roughly: bool = False) -> Sums:
        """Return the sums, see ``sums`` of a backend's ``wls.py``; `roughly`: with Gram matrices in less precision."""

    def residual_sums(self, classes: slice, coef: Array, intercept: Array) -> tuple[Array, Array]:
        """Return the sums that refine fits of some classes, see ``residual_sums`` there."""

    def stage(self) -> AbstractContextManager[None]:
        """Return the context in which systems are solved."""


def fit(xp: Any, wls: WlsModule, rows: Source, l2: float) -> WlsFit:
    """Fit every class, a range of them at a time: sums, solution, and steps of refinement where the backend wants them.

    Parameters
    ----------
    xp : array namespace of the backend
    wls : its ``wls`` module
    rows : gives the sums
    l2 : penalty on the coefficients
    """
    found: list[WlsFit] = []
    totals: Sums | None = None

    def asked(classes: slice, rough: bool) -> Sums:
        """Return the sums of a range of classes alone."""
        nonlocal totals
        sums = rows.sums(classes, totals is None, rough)
        whole = sums if totals is None else totals
        totals = whole._replace(gram=None)
        return _of(whole, sums.gram, classes)

    def exact(classes: slice) -> WlsFit:
        mine = asked(classes, rough=False)
        with rows.stage(), part("solve"):
            fits, factors = wls.solve(mine, l2, rows.precision)
        if factors is not None:
            xr, sr = rows.residual_sums(classes, fits.coef, fits.intercept)
            with rows.stage(), part("refine"):
                fits = wls.refine(factors, xr, sr, fits)
        return fits

    def work(classes: slice) -> None:
        found.append(_improved(wls, rows, l2, classes, asked, exact) if rows.rough else exact(classes))

    if rows.n_columns == 0:
        return _intercepts(xp, rows.sums(slice(0, 0), True))
    wls.over_classes(rows.n_classes, rows.n_columns, rows.at_once, work, rows.whole)
    if len(found) == 1:
        return found[0]
    return WlsFit(
        xp.concat([fits.coef for fits in found], axis=1),
        xp.concat([fits.intercept for fits in found]),
        np.concatenate([fits.rank for fits in found]),
        np.concatenate([fits.ladder for fits in found]),
    )


def _improved(
    wls: WlsModule,
    rows: Source,
    l2: float,
    classes: slice,
    asked: Callable[[slice, bool], Sums],
    exact: Callable[[slice], WlsFit],
) -> WlsFit:
    """Return fits that rough Gram matrices begin and residuals make exact; those that do not settle by exact sums."""
    mine = asked(classes, True)
    with rows.stage(), part("solve"):
        system = wls.rough.Rough(mine, l2)
    del mine  # of up to 256 columns the factors are beside the Gram matrices, which nobody needs any more
    while system.open.any():
        xr, sr = rows.residual_sums(classes, system.coef, system.intercept)
        with rows.stage(), part("refine"):
            system.improve(xr, sr)
    fits, lost = system.fit(), np.flatnonzero(system.lost)
    del system  # its factors: of more columns they are the Gram matrices
    for run in np.split(lost, np.flatnonzero(np.diff(lost) > 1) + 1) if lost.size else ():
        some = exact(
            slice(classes.start + run[0], classes.start + run[-1] + 1)
        )  # products serve all of a run
        fits.coef[:, run], fits.intercept[run] = some.coef, some.intercept
        fits.rank[run], fits.ladder[run] = some.rank, some.ladder
    return fits


def _of(totals: Sums, gram: Any, classes: slice) -> Sums:
    """Return the sums of a range of classes."""
    columns = [None if sums is None else sums[:, classes] for sums in (totals.xr, totals.xw)]
    single = [None if sums is None else sums[classes] for sums in (totals.sr, totals.sw)]
    return Sums(columns[0], columns[1], single[0], single[1], gram)


def _intercepts(xp: Any, sums: Sums) -> WlsFit:
    """Return fits without columns: the weighted means."""
    sw, sr = sums.sw, sums.sr
    none = np.zeros(sw.shape[0], dtype=np.intp)
    return WlsFit(xp.zeros((0, sw.shape[0])), sr / xp.where(sw > 0.0, sw, xp.ones_like(sw)), none, none)


def add(total: Sums | None, more: Sums | None) -> Sums | None:
    """Return the sums of two sets of rows; None stands for no rows. The first is overwritten."""
    if total is None or more is None:
        return more if total is None else total
    fields = []
    for mine, theirs in zip(total, more, strict=True):
        both = mine
        if mine is not None:
            both = _wide(mine)
            both += theirs
        fields.append(both)
    return Sums(*fields)


def _wide(array: Any) -> Any:
    """Return an array in float64, so that no digits are lost when many sets of rows are added."""
    return array.astype(np.float64) if getattr(array, "dtype", None) == np.float32 else array
