"""Packages that scikit-learn imports in case somebody needs them, loaded when somebody does.

``import sklearn.base`` takes 0.8 s, of which SciPy's statistics and pandas take two thirds, and no command needs
either. Of the rest, 0.6 s on a slower machine, SciPy's special functions, NumPy's way to Fortran and its assertions
take 0.1 s. Only the command line does this: a program that imports this package keeps what it imports.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

_loading = threading.RLock()


class _Postponed(ModuleType):
    """A module whose code runs when an attribute is first asked for; ``import`` alone does not ask.

    The standard library's ``LazyLoader`` does not serve: a second ``import`` of the module loads it.
    """

    def __getattr__(self, name: str) -> Any:  # called for what is not there yet
        with _loading:
            if type(self) is _Postponed and not self.__dict__.get("_begun"):
                self._begun = True
                try:
                    _load(self)
                finally:
                    del self._begun
                self.__class__ = ModuleType  # type: ignore[assignment]
        return ModuleType.__getattribute__(self, name)


def _load(module: ModuleType) -> None:
    spec = module.__spec__
    assert spec is not None
    assert spec.loader is not None
    if spec.submodule_search_locations is not None:
        module.__path__ = list(spec.submodule_search_locations)
    spec.loader.exec_module(module)


def postpone(name: str) -> None:
    """Make the module `name` one that is loaded when it is used, unless it is there already, or not installed."""
    if name in sys.modules:
        return
    spec = importlib.util.find_spec(name)  # imports the package that it lies in
    if spec is None or spec.loader is None:
        return
    module = _Postponed(name)
    module.__spec__ = spec
    module.__loader__ = spec.loader
    module.__package__ = name if spec.submodule_search_locations is not None else spec.parent
    sys.modules[name] = module
    package, _, last = name.rpartition(".")
    if package:
        setattr(sys.modules[package], last, module)


LATER = ("scipy.stats", "scipy.special", "numpy.f2py", "numpy.testing")


def import_sklearn() -> None:
    """Import scikit-learn's base without `LATER` (loaded when used) and pandas (if it is ever imported).

    scikit-learn asks ``sys.modules`` whether a table could be one of pandas', so that must not be in there: while None
    stands there, as documented, the import fails, and scikit-learn does without.
    """
    if "sklearn" in sys.modules:
        return
    for name in LATER:
        postpone(name)
    hidden = "pandas" not in sys.modules
    if hidden:
        sys.modules["pandas"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("sklearn.base")
    finally:
        if hidden:
            del sys.modules["pandas"]
