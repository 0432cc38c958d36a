"""A partition: rows of the training or validation set, their scores, and the sums that a round asks of them.

What goes in and out of a partition is small: a step, a request, sums. The rows and their scores stay. All the
mathematics of a round that looks at rows is here; the loop adds the partitions' sums and solves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.backends import fits
from pipeline.backends.protocol import Sums
from pipeline.boosting.blocks import Picked, picked
from pipeline.boosting.columns import Columns
from pipeline.boosting.loss import SCORE_LIMIT, WEIGHT_FLOOR, log_loss_sum, softmax, trim, working_response
from pipeline.boosting.messages import Basis, Frame, Moments, Move, Report, Request, pooled
from pipeline.boosting.steps import Step, evaluate
from pipeline.spans import part as measured
from pipeline.spans import span

if TYPE_CHECKING:
    from pipeline.backends.protocol import Backend

Array = Any

SLICE = 256  # rows of a block whose moments are taken at a time: they are copied in float64
LONG = 256  # rows of few numbers that are added up as one long row


def _column_sums(xp: Any, V: Array) -> Array:
    """Return the sums of the columns of V (n, J), float64.

    NumPy adds long rows five times as fast as short ones: of 10,000 x 10 numbers .04 ms instead of .19.
    """
    n, J = V.shape
    V, whole = xp.astype(V, xp.float64), n // LONG * LONG
    long = xp.sum(xp.reshape(V[:whole, :], (-1, LONG * J)), axis=0)
    return xp.sum(xp.reshape(long, (LONG, J)), axis=0) + xp.sum(V[whole:, :], axis=0)


def _in_room(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a method that may be called again be called again with more room, if a device's memory runs out in it.

    What it works out for all rows, the scores, cannot be taken in halves. Sums of classes can: they ask for room only
    when those of a single class find none (``over_classes`` of the backend).
    """

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(self: Partition, *arguments: Any) -> Any:
            return self.backend.in_room(lambda: method(self, *arguments), f"{what} of {len(self)} rows")

        return call

    return wrap


class Partition:
    """Rows and their scores.

    Parameters
    ----------
    backend : who works on them
    rows : (n, p) array where the backend works, in the dtype of the fit; or RowBlocks
    codes : intp (n,) class numbers, in host memory
    weight : float64 (n,) sample weights, in host memory

    Attributes
    ----------
    F : (n, J) scores, where the backend works
    streams : whether the rows come in blocks, so that each look at them costs a pass
    columns : what the bases of the rounds make of the rows
    """

    F: Array
    frame: Frame

    def __init__(self, backend: Backend, rows: Any, codes: np.ndarray, weight: np.ndarray) -> None:
        self.backend, self.rows = backend, rows
        self.codes, self.sample_weight = codes, weight
        self.streams = hasattr(rows, "blocks")
        self.total = float(weight.sum())
        self.columns = Columns(backend, self.streams)
        self._moved: Array = None
        self._responds = (
            False  # whether sums are asked of it: then weights and responses are made with the scores
        )
        self._forget()
        self._after: Basis | None = None

    def __len__(self) -> int:
        return self.rows.shape[0]

    def _forget(self) -> None:
        self._targets: tuple[Array, Array] | None = None
        self._coming: tuple[Array, Array] | None = None
        self._values: tuple[Basis, Array] | None = None

    def _blocks(self, dtype: str | None = None, *bases: Basis) -> Iterator[tuple[slice, Array]]:
        """Yield slices and their rows: where they stream, only the columns that `bases` need, if those say which."""
        if self.streams:
            some = picked(bases)
            sets = [one.columns for one in some] or None
            for begin, end, X in self.rows.blocks(dtype or self.frame.dtype, sets):
                yield slice(begin, end), Picked(some, X) if some else X
        elif len(self):
            yield slice(0, len(self)), self.rows

    def moments(self, dtype: str) -> Moments | None:
        """Return mean and variance of each column; None for no rows or no weight."""
        found = None
        for part, X in self._blocks(dtype):
            weight = self.sample_weight[part]
            if not self.streams:
                return self._moments(X, weight)
            for a in range(0, len(weight), SLICE):
                rows = slice(a, a + SLICE)
                if (weight[rows] > 0.0).any():
                    more = self._moments(X[rows, :], weight[rows])
                    found = more if found is None else pooled([found, more])
        return found

    def _moments(self, X: Array, weight: np.ndarray) -> Moments:
        mean, variance = self.backend.wls.column_moments(X, self.backend.put(weight))
        return Moments(self.backend.get(mean), self.backend.get(variance), float(weight.sum()), len(weight))

    @_in_room("the scores")
    def begin(self, frame: Frame, steps: list[Step], scores: np.ndarray | None = None) -> None:
        """Take up the fit, with the scores (n, J) that `steps` gave, or those that they give."""
        backend, xp = self.backend, self.backend.xp
        self.frame = frame
        self._forget()
        self._after = None
        self._responds = False
        self.center = backend.put(frame.center)
        self.columns.begin(frame, self.center)
        self.weight = backend.put(self.sample_weight.astype(frame.dtype))
        self.labels = None if self.streams else self._labels(slice(0, len(self)))
        if scores is not None:
            self.F = xp.asarray(np.array(scores, dtype=frame.dtype))  # never a matrix that streams
        else:
            self.F = xp.zeros((len(self), frame.n_classes), dtype=getattr(xp, frame.dtype))
        self._moved = xp.empty_like(self.F) if self.streams else None
        for part, X in self._blocks() if steps and scores is None else ():
            F = self.F[part, :]
            for step in steps:
                F = F + evaluate(backend, step.placed(backend), X, self.center, frame.seed)
            self.F[part, :] = F

    def scores(self) -> np.ndarray:
        """Return the scores (n, J), in host memory."""
        return np.asarray(self.backend.get(self.F))

    def _labels(self, part: slice) -> Array:
        codes, J = self.codes[part], self.frame.n_classes
        if self.backend.scores is not None:
            return self.backend.scores.targets(codes, J)
        return self.backend.put((codes[:, None] == np.arange(J)).astype(self.frame.dtype))

    def sums(self, request: Request) -> Sums | None:
        """Return the sums at the scores as they are; None for no rows."""
        total = None
        for part, X in self._blocks(None, *request.looks_at()):
            total = fits.add(total, self._sums(request, part, X, self.F[part, :]))
        if request.after is not None and len(self):  # threads are idle until the sums after these
            self.columns.start(request.after, self.rows)
        return total

    def _sums(self, request: Request, part: slice, X: Array, F: Array) -> Sums:
        wls = self.backend.wls
        with span("update"):
            W, R = self._working(part, F)
        if request.componentwise:
            with span("fit"), measured("sums"):
                return self.backend.in_room(lambda: self._componentwise(X, W, R), f"sums of {len(self)} rows")
        phi, center = self.columns.of(request.basis, X, "columns")
        with span("fit"):
            if request.rough:
                return wls.rough.sums(phi, W, R, request.classes, request.totals)
            return wls.sums(phi, center, W, R, request.classes, request.totals, request.gram_precision)

    def _componentwise(self, X: Array, W: Array, R: Array) -> Sums:
        xp = self.backend.xp
        found = self.backend.wls.componentwise_sums(X, self.center, W, R)
        return Sums(found.xr, found.xw, _column_sums(xp, R), _column_sums(xp, W), None, found.xxw)

    def residual_sums(
        self, request: Request, coef: Array, intercept: Array
    ) -> tuple[Array | None, Array | None]:
        """Return the sums that refine the fits of ``request.classes``, see ``residual_sums`` of the backend."""
        backend = self.backend
        coef, intercept = backend.put(coef), backend.put(intercept)
        xr = sr = None
        for part, X in self._blocks(None, *request.looks_at()):
            with span("update"):
                W, R = self._working(part, self.F[part, :])
            phi, center = self.columns.of(request.basis, X, "columns")
            with span("fit"):
                more = backend.wls.residual_sums(phi, center, W, R, request.classes, coef, intercept)
            xr, sr = more if xr is None else (xr + more[0], sr + more[1])
        return xr, sr

    @_in_room("the move")
    def advance(self, move: Move, request: Request | None = None) -> Report:
        """Work out the scores after a move, and with a request the sums at those scores, in one pass.

        The scores become the partition's only with :meth:`keep`.
        """
        pairs, total = [], None
        self._targets = None  # of the round that ends
        self._coming = None
        bases = (move.basis, *(request.looks_at() if request is not None else ()))
        for part, X in self._blocks(None, *bases):
            with span("update"):
                respond = request is not None or not self.streams
                moved, pair = self._advanced(part, self._moving(move, X), move.factor, respond)
                pairs.append(np.asarray(self.backend.get(pair)).tolist())
            if self.streams:
                self._moved[part, :] = moved
            else:
                self._moved = moved
            if request is not None:
                total = fits.add(total, self._sums(request, part, X, moved))
            if self.streams:
                self._targets = None
        self._coming, self._targets = self._targets, None  # they are those of scores that are not kept yet
        self._after = request.after if request is not None else None
        return Report(max((p[0] for p in pairs), default=0.0), sum(p[1] for p in pairs), total)

    def prepare(self) -> None:
        """Make the columns that the round after will need, as the last request foretold: before they are asked for."""
        after, self._after = self._after, None
        if after is None or self.streams or not len(self):
            return
        self.columns.prepare(after, self.rows)

    def _advanced(self, part: slice, values: Array, factor: float, respond: bool) -> tuple[Array, Array]:
        """Return F + factor (values - their row mean), and (2,): its largest absolute value, its log-loss sum.

        F itself stays. The two numbers come home together: one transfer and one wait for a device. A partition that is
        asked for sums makes its next weights and responses here, if `respond` and the backend does both in one.
        """
        xp, F, weight = self.backend.xp, self.F[part, :], self.weight[part]
        labels = self._labels(part) if self.labels is None else self.labels
        if self.backend.scores is not None:
            rules = self._rules if respond and self._responds else None
            moved, pair, targets = self.backend.scores.advance(F, values, factor, labels, weight, rules)
            if targets is not None:
                self._targets = self._fitted(*targets)
            return moved, pair
        moved = F + factor * (values - xp.mean(values, axis=1, keepdims=True))
        return moved, xp.stack([xp.max(xp.abs(moved)), log_loss_sum(xp, moved, labels, weight)])

    @_in_room("the limit of the scores")
    def room(self, move: Move) -> float:
        """Return the largest share t < 1 of a move for which the scores stay within their limit; 1 if all of it.

        A step is shortened as a whole, never clipped element by element: what was fitted stays what is predicted.
        """
        xp, limit = self.backend.xp, SCORE_LIMIT[self.frame.dtype]
        least = 1.0
        for part, X in self._blocks(None, move.basis):
            values, F = self._moving(move, X), self.F[part, :]
            values = move.factor * (values - xp.mean(values, axis=1, keepdims=True))
            growing = xp.abs(F + values) > limit
            distance = xp.where(values > 0, limit - F, limit + F)
            size = xp.abs(values)
            share = xp.where(
                growing, distance / xp.where(growing, size, xp.ones_like(size)), xp.ones_like(size)
            )
            least = min(least, float(xp.min(share)))
        return least

    def keep(self) -> None:
        """Make the scores of the last move the partition's own."""
        if self.streams:
            self.F, self._moved = self._moved, self.F
        elif self._moved is not None:  # there are rows
            self.F, self._moved = self._moved, None
        coming = self._coming
        self._forget()
        self._targets = coming  # worked out together with the move, for the round to come, as the columns are

    def _working(self, part: slice, F: Array) -> tuple[Array, Array]:
        """Return the weights and weighted responses (n, J) at scores F; of two classes only the second's."""
        if self._targets is not None:
            return self._targets
        self._responds = True
        xp, weight = self.backend.xp, self.weight[part]
        labels = self._labels(part) if self.labels is None else self.labels
        if self.backend.scores is not None:
            W, R = self.backend.scores.working_response(F, labels, weight, *self._rules)
        else:
            W, R = working_response(xp, labels, softmax(xp, F), weight, *self._rules)
        targets = self._fitted(W, R)
        if not self.streams:
            self._targets = targets
        return targets

    @property
    def _rules(self) -> tuple[float, str, float]:
        """Bounds of working responses and weights: z_max, clip, floor."""
        return self.frame.z_max, self.frame.clip, WEIGHT_FLOOR[self.frame.dtype]

    def _fitted(self, W: Array, R: Array) -> tuple[Array, Array]:
        """Return what is fitted of weights and responses: trimmed, and of two classes the second's."""
        W, R = trim(self.backend.xp, W, R, self.frame.trim)
        if self.frame.n_classes == 2:  # equal weights and opposite responses: one fit serves both
            W, R = W[:, 1:], R[:, 1:]
        return W, R

    def _moving(self, move: Move, X: Array) -> Array:
        """Return the values (n, J) of a move, before its factor."""
        backend, xp = self.backend, self.backend.xp
        if self._values is not None and move.basis.same(self._values[0]):
            return self._values[1]
        phi, center = self.columns.of(move.basis, X, "update")
        values = backend.wls.apply(phi, center, backend.put(move.coef), backend.put(move.intercept))
        if move.mirrored:
            values = xp.concat([-values, values], axis=1)
        if not self.streams:
            self._values = move.basis, values
            self.columns.forget()
        return values
