"""Philox 4x32-10: a counter-based random generator whose numbers are the same on every backend.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A draw is a pure
function of (key, counter), so a projection matrix of thousands of columns is regenerated from a seed and a
round number instead of being stored, in any order and on any device.
"""

from __future__ import annotations

import numpy as np

MULTIPLIER = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
NORMAL_STREAM, UNIFORM_STREAM = 0, 1  # last word of the counter: what the draw is for

_LOW = np.uint64(0xFFFFFFFF)
_WORD = np.uint64(32)


def philox4x32(counter: tuple[np.ndarray | int, ...], key: tuple[int, int]) -> list[np.ndarray]:
    """Return the four 32-bit words (as uint64 arrays) of each counter.

    Parameters
    ----------
    counter : four integers or uint64 arrays below 2**32, broadcast against each other
    key : two integers below 2**32
    """
    c0, c1, c2, c3 = (np.asarray(c, dtype=np.uint64) for c in counter)
    k0, k1 = key
    for _ in range(ROUNDS):
        product0, product1 = np.uint64(MULTIPLIER[0]) * c0, np.uint64(MULTIPLIER[1]) * c2
        c0, c1, c2, c3 = (
            (product1 >> _WORD) ^ c1 ^ np.uint64(k0),
            product1 & _LOW,
            (product0 >> _WORD) ^ c3 ^ np.uint64(k1),
            product0 & _LOW,
        )
        k0, k1 = (k0 + WEYL[0]) & 0xFFFFFFFF, (k1 + WEYL[1]) & 0xFFFFFFFF
    return list(np.broadcast_arrays(c0, c1, c2, c3))


def split_seed(seed: int) -> tuple[int, int]:
    """Return `seed` (0 <= seed < 2**64) as the two 32-bit words of a key."""
    return seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF


def _words(count: int, seed: int, index: int, stream: int) -> np.ndarray:
    blocks = np.arange(-(-count // 4), dtype=np.uint64)
    words = philox4x32((blocks & _LOW, blocks >> _WORD, index, stream), split_seed(seed))
    return np.stack(words, axis=1)


def uniform(count: int, seed: int, index: int) -> np.ndarray:
    """Return `count` uniform numbers in the open interval (0, 1), float64, for draw number `index` of `seed`."""
    words = _words(count, seed, index, UNIFORM_STREAM)
    return ((words + 0.5) * 2.0**-32).ravel()[:count]


def normal(count: int, seed: int, index: int) -> np.ndarray:
    """Return `count` standard normal numbers, float64, by Box and Muller's transform of pairs of words."""
    u = (_words(count, seed, index, NORMAL_STREAM) + 0.5) * 2.0**-32
    radius = np.sqrt(-2.0 * np.log(u[:, 0::2]))
    angle = 2.0 * np.pi * u[:, 1::2]
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=2)
    return pairs.reshape(-1)[:count]
