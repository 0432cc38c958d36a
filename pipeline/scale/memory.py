"""How large the chunks of a run may be, from ``scale.memory_limit``."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.backends.triangle import SQUARE, kept
from pipeline.errors import LimitError

SHARE = 4  # the reading of images may take this part of the free memory
KNOWN = (
    168  # bytes of an image whatever its size: its name, its digest, and what finds those that occur twice
)
LEAST_ROWS = 128  # in a block: below, a round spends its time on calls
MOST_ROWS = 8192  # beyond, blocks of all features are no faster
MOST_DRAWN = 1 << 14  # and those of the columns that a round draws
SUMMED = 256  # rows that are added together before their sum is: blocks of a multiple leave none over
READ = 1 << 20  # bytes that a thread reads at a time, about, unless a group of images is longer
SEGMENTS, MOMENTS = 8, 1 << 24  # parts of rows, and bytes of their sums, as in backends/cpu/wls_moments.py
GROUP = 16  # images that lie together in a file
MARGIN = 24 << 20  # bytes for what is not counted: the interpreter's own growth, threads, compiled code


def sums_of_segments(p: int, classes: int, most: int) -> int:
    """Return the bytes of the sums of single features, of all parts of the rows, as in backends/cpu/wls_moments.py.

    Where they would be more than `most`, there are fewer parts, in exchange for groups of sets of classes; of a single
    set, of ten classes at most, there are none.
    """
    each = 8 * 3 * p * classes
    groups = 1 << (-(-classes // 10)).bit_length() - 1
    return max(min(SEGMENTS * each, most), max(1, SEGMENTS // groups) * each)


def resident() -> int:
    """Return the bytes of memory that this process holds now."""
    import psutil

    return psutil.Process().memory_info().rss


@dataclass(frozen=True)
class Budget:
    """The bytes that are left under a limit."""

    limit: int
    used: int

    @property
    def free(self) -> int:
        """Bytes that may still be taken."""
        return self.limit - self.used - MARGIN

    def rows(self, fixed: int, per_row: int, what: str) -> int:
        """Return how many rows to work on at a time, beside `fixed` bytes.

        Raises
        ------
        LimitError
            If the limit is too low: it says which would do.
        """
        rows = (self.free - fixed) // max(per_row, 1)
        if rows < LEAST_ROWS:
            needed = self.used + MARGIN + fixed + LEAST_ROWS * per_row
            raise LimitError(
                f"scale.memory_limit={self.limit / 1e6:.0f}MB is too low for {what}: the program itself holds "
                f"{self.used / 1e6:.0f} MB; give at least scale.memory_limit={-(-needed // 10**6) + 1}MB"
            )
        return min(int(rows), MOST_ROWS)


def chunk_rows(free: int, kept: int) -> int:
    """Return the rows of a file of `kept` bytes each."""
    return min(MOST_ROWS, free // (SHARE * 2 * kept))


def reading(pixels: int, kept: int) -> int:
    """Return the bytes that an image must find free while images are read."""
    return SHARE * (pixels * 12 + 2 * kept)


def classes(gram_bytes: int, q: int) -> int:
    """Return for how many classes so many bytes hold the Gram matrices of q columns, total and a block's."""
    return max(1, gram_bytes // (2 * 8 * max(kept(q), 1)))


@dataclass(frozen=True)
class Work:
    """What decides the memory of a round.

    Attributes
    ----------
    p, q : columns of the features and of a round's fit
    fitted : classes fitted, J or 1
    item : bytes of a number of the rounds
    kept : bytes of a row on disk
    feature : bytes of a number of the features
    threads : that read and expand
    """

    p: int
    q: int
    classes: int
    fitted: int
    item: int
    kept: int
    feature: int
    threads: int
    random: bool
    componentwise: bool

    def per_row(self) -> int:
        """Return the bytes that a row of a block takes while a round looks at it."""
        row = self.p * self._number
        if self.componentwise:
            row += row // 16  # sums of parts of a block, as in backends/cpu/wls_moments.py
        if self.random:
            row += 2 * self.q * self.item
        return row + self._beside

    def per_drawn_row(self) -> int:
        """Return the bytes of a row of a block of which only the columns of a step and of a round are made."""
        return 2 * self.q * self._number + self._beside

    @property
    def _number(self) -> int:
        """Bytes of a feature, and of the same in the type of the rounds."""
        return self.feature + (self.item if self.item != self.feature else 0)

    @property
    def _beside(self) -> int:
        return 14 * self.classes * self.item + 24 * self.fitted

    def grams(self, classes: int) -> int:
        """Return the bytes of Gram matrices of some classes: a total, a block's, and what factorisation copies."""
        if self.componentwise:
            return 2 * 8 * 3 * self.p * self.fitted + sums_of_segments(self.p, self.fitted, MOMENTS)
        return 8 * (2 * classes * kept(self.q) + 4 * self.q * self.q)

    def fixed(self) -> int:
        """Return the bytes that do not depend on rows or on the classes in a request."""
        buffers = 1 << 22 if self.q > SQUARE or self.random else 1 << 20
        draw = 3 * self.p * self.q * self.item if self.random else 0
        moments = 3 * 8 * 256 * self.p
        read = self.threads * max(READ, GROUP * self.kept)
        return 4 * buffers * self.item // 2 + draw + read + moments

    def state(self, n: int) -> int:
        """Return the bytes of the scores, labels and weights of `n` rows."""
        return n * (3 * self.classes * self.item + 48)


def division(budget: Budget, work: Work, n: int) -> tuple[int, int]:
    """Return the rows of a block and the bytes for Gram matrices of more classes, with `n` training rows.

    Half of what is left goes to Gram matrices of more classes, so that a pass serves them all. The bits of sums follow
    from the length of a block, so that is a round number: it seldom changes with what else the process holds.

    Raises
    ------
    LimitError
        If the limit is too low for any block.
    """
    fixed = work.state(n) + work.fixed()
    rows = budget.rows(fixed + work.grams(1), work.per_row(), "training")
    if rows * work.per_row() > budget.free // 2:
        rows = max(min(rows, 2048), rows // 2)
    unit = 1 << max(0, rows.bit_length() - 2)
    rows = rows // unit * unit
    return rows, max(0, budget.free - fixed - work.grams(0) - rows * work.per_row())


def drawn(rows: int, work: Work) -> int:
    """Return the rows of a block of drawn columns, which takes no more memory than `rows` rows of all features."""
    most = min(MOST_DRAWN, rows * work.per_row() // work.per_drawn_row())
    return most // SUMMED * SUMMED or most
