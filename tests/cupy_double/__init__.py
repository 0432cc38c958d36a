"""A hostile test double of the part of CuPy, and of cuCIM, that the gpu backend's host code uses.

Underneath is NumPy. It refuses what CuPy refuses, differs where CuPy differs, copies late where CuPy copies
asynchronously, counts transfers and launches, and runs out of memory on demand. It shows that the host code makes no
NumPy-only assumption; it says nothing of what a GPU computes, and is never to be called "the GPU path".
"""

from tests.cupy_double.install import installed
from tests.cupy_double.machine import Machine

__all__ = ["Machine", "installed"]
