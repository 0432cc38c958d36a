"""Ways to do the same work, timed against each other on this machine.

A suite is a piece of work with one file here; a row is one way to do it, a small function registered with
``@row``. Packages that only rows need are imported inside them, and none is required.
"""

from pipeline.benchmarks.registry import NAMES, Case, Setup, Work, row, suite

__all__ = ["NAMES", "Case", "Setup", "Work", "row", "suite"]
