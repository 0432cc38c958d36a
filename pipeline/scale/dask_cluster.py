"""A Dask cluster: found or started, asked who is there, and told apart from one that is gone."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from pipeline import config, installing
from pipeline.errors import ClusterError, ConfigError
from pipeline.files import expanded
from pipeline.scale import dask_client, dask_start
from pipeline.software import SOURCES, software

POLL = 0.5  # seconds between two looks whether everybody is still there
LOUD = ("distributed", "tornado", "asyncio")


def _software_there() -> dict[str, str]:
    """Return the versions where this runs, if all that a model needs can be imported there."""
    importlib.import_module("pipeline.model")
    return software()


def require(backend: str, settings: config.Scale) -> None:
    """Refuse, before anything is read, what is not installed or cannot be.

    Raises
    ------
    ConfigError
    """
    if importlib.util.find_spec("dask") is None or importlib.util.find_spec("distributed") is None:
        raise ConfigError(
            "scale=dask needs the packages dask and distributed: "
            f"{installing.command('hogboost[dask]')}; or leave scale=dask out"
        )
    ours = settings.scheduler is None
    if backend == "gpu" and ours and settings.processes and importlib.util.find_spec("dask_cuda") is None:
        raise ConfigError(
            "scale=dask backend=gpu starts one worker for each GPU with the package dask-cuda, which is not "
            f"installed: {installing.command('dask-cuda')}; or start workers yourself and give scale.scheduler=tcp://..."
        )
    files = {"tls_ca": settings.tls_ca, "tls_cert": settings.tls_cert, "tls_key": settings.tls_key}
    for name, path in files.items():
        if path is not None and not expanded(path).is_file():
            raise ConfigError(f"scale.{name}={path}: no such file")
        if path is not None and ours:
            raise ConfigError(
                f"scale.{name}={path} is for a cluster that is there; give its scale.scheduler=tls://..., or leave it "
                "out"
            )
    if settings.tls_key is not None and settings.tls_cert is None:
        raise ConfigError(
            f"scale.tls_key={settings.tls_key} belongs to a certificate; give scale.tls_cert=, too, or leave it out"
        )


class Cluster:
    """A client of a scheduler, and what is known of the workers.

    Attributes
    ----------
    client : distributed.Client
    settings : config.Scale
    known : addresses of workers that have told their software
    """

    def __init__(self, client: Any, settings: config.Scale) -> None:
        self.client, self.settings = client, settings
        self.address = str(client.scheduler.address)
        self.known: set[str] = set()

    @property
    def dashboard(self) -> str:
        """Where the dashboard is, in words."""
        link = str(self.client.dashboard_link)
        if importlib.util.find_spec("bokeh") is None:
            return f"{link} (shows nothing without the package bokeh: {installing.command('bokeh')})"
        return link

    def threads(self) -> dict[str, int]:
        """Return the threads of every worker that the scheduler knows, by their addresses.

        Raises
        ------
        ClusterError
            If the scheduler does not answer.
        """
        with self.asked():
            found = self.client.sync(self.client.scheduler.ncores, callback_timeout=self.settings.wait)
        return dict(sorted(found.items()))

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Raise ClusterError if the block, which asks the scheduler for something, finds that it is gone."""
        from distributed.client import ClosedClientError

        if (
            self.client.status != "running"
        ):  # "connecting": it tries again, but all that workers hold for it is gone
            raise self.lost("the connection broke")
        try:
            yield
        except (ClosedClientError, OSError, TimeoutError) as error:  # CommClosedError is an OSError
            raise self.lost(str(error) or type(error).__name__) from error

    def lost(self, why: str) -> ClusterError:
        """Return the error of a scheduler that is gone."""
        again = "start it and its workers again" if self.settings.scheduler else "it ran in this process"
        return ClusterError(
            f"the Dask scheduler {self.address} was lost ({' '.join(why.split())[:160]}); {again}"
        )

    def memory(self) -> dict[str, int]:
        """Return the bytes that each worker may take; 0 where no limit is known.

        Raises
        ------
        ClusterError
            If the scheduler does not answer.
        """
        asked = self.settings.memory_limit
        limit = config.size_in_bytes(asked) if asked else None
        with self.asked():
            wait, identity = self.settings.wait, self.client.scheduler.identity
            known = self.client.sync(identity, n_workers=-1, callback_timeout=wait)["workers"]
        found = {address: int(one.get("memory_limit") or 0) for address, one in known.items()}
        return {address: min(limit, own or limit) if limit else own for address, own in found.items()}

    def await_workers(self, count: int = 1) -> dict[str, int]:
        """Return the threads of the workers as soon as there are `count`.

        Raises
        ------
        ClusterError
            If there are fewer after ``scale.wait`` seconds.
        """
        deadline = time.monotonic() + self.settings.wait
        while True:
            found = self.threads()
            if len(found) >= count:
                return found
            if time.monotonic() > deadline:
                wanted = f" of scale.workers={count}" if count > 1 else ""
                raise ClusterError(
                    f"the Dask scheduler {self.address} has {len(found)} workers{wanted} after scale.wait="
                    f"{self.settings.wait:g} seconds; start some: dask worker {self.address}"
                )
            time.sleep(min(POLL, self.settings.wait / 10))

    def check_versions(self) -> list[str]:
        """Return what differs between the software of workers and scheduler and this program's, in words.

        Raises
        ------
        ClusterError
            If one of them cannot import this program, has another version or other sources of it, or does not answer
            for ``scale.wait`` seconds.
        """
        with self._told_of_software() as wait:
            # What run_on_scheduler does, but that has no limit of time.
            asked = self.client._run_on_scheduler
            scheduler = self.client.sync(asked, _software_there, callback_timeout=wait)
        return self._differences({"the scheduler": scheduler} | self._software(None))

    def check_newcomers(self, workers: Iterable[str]) -> list[str]:
        """Return and raise what :meth:`check_versions` does, of those workers that are not known yet.

        One that is lost meanwhile is not known afterwards, either, and no error.
        """
        new = sorted(set(workers) - self.known)
        if not new:
            return []
        try:
            there = self._software(new)
        except ClusterError:
            if set(new) <= self.threads().keys():
                raise
            return []
        return self._differences(there)

    def _software(self, workers: list[str] | None) -> dict[str, dict[str, str]]:
        """Return the versions that workers, or all of them, tell."""
        there: dict[str, dict[str, str]] = {}
        with self._told_of_software() as wait:
            asked, given = self.client._run, {"workers": workers, "on_error": "return"}
            found = self.client.sync(asked, _software_there, callback_timeout=wait, **given)
            for place, one in found.items():
                if isinstance(one, Exception) and not isinstance(one, OSError):
                    raise one
                if not isinstance(one, OSError):  # a worker that was lost meanwhile: who asks it next is told
                    there[place] = one
        return there

    @contextmanager
    def _told_of_software(self) -> Iterator[float]:
        """Raise ClusterError where the block, which asks for versions, fails; yield how long it may wait."""
        wait = self.settings.wait
        try:
            yield wait
        except TimeoutError as error:
            raise ClusterError(
                f"the scheduler {self.address} or a worker has not told its versions for scale.wait={wait:g} seconds; "
                f"look at {self.client.dashboard_link}, or raise scale.wait"
            ) from error
        except (ImportError, AttributeError, RuntimeError) as error:
            raise ClusterError(
                f"the scheduler {self.address} or a worker cannot import this program "
                f"({' '.join(str(error).split())[:120]}); install hogboost[dask] of the same version there"
            ) from error
        except OSError as error:
            raise self.lost(str(error)) from error

    def _differences(self, there: dict[str, dict[str, str]]) -> list[str]:
        """Return in words what differs there, and keep who is known now."""
        here, differ = software(), []
        for place, found in sorted(there.items()):
            for name in ("hogboost", SOURCES):
                if found.get(name) != here[name]:
                    raise ClusterError(
                        f"{place} has {name} {found.get(name)}, here it is {here[name]}; install the same version "
                        "everywhere"
                    )
            changed = [f"{k} {v}, here {here.get(k)}" for k, v in found.items() if here.get(k) != v]
            if changed:
                differ.append(f"{place}: {'; '.join(changed)}")
        self.known |= there.keys()
        return differ


@contextmanager
def connected(settings: config.Scale, backend: str) -> Iterator[Cluster]:
    """Yield a cluster: that of ``scale.scheduler``, or one that is started here and ends with the block.

    Raises
    ------
    ClusterError
        If the scheduler cannot be reached or has too few workers after ``scale.wait`` seconds, or workers cannot be
        started here.
    """
    import dask

    with ExitStack() as stack:
        stack.enter_context(_quiet())
        stack.enter_context(dask.config.set(dask_start.OURS if settings.scheduler is None else {}))
        ours = None
        if settings.scheduler is None:
            ours = dask_start.workers(settings, backend)
            stack.callback(_closed, ours)
        client = dask_client.connect(ours, settings)
        stack.callback(_closed, client)
        found = Cluster(client, settings)
        # A client gathers its messages for 10 ms; a round waits for each, so they go at once.
        if hasattr(client.scheduler_comm, "interval"):
            client.scheduler_comm.interval = 0.001
        found.await_workers(max(1, settings.workers))
        yield found


def _closed(what: Any) -> None:
    with suppress(OSError, TimeoutError, RuntimeError):  # it may be gone already
        what.close(timeout=10)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's own lines off the error stream: what goes wrong is told by this program, in one."""
    import distributed  # noqa: F401  makes its loggers

    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in LOUD]
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
