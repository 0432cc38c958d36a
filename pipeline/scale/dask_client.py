"""The connection to a Dask scheduler: addresses are checked first, and a scheduler that says nothing is given up."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from typing import Any

from pipeline import config
from pipeline.errors import ClusterError
from pipeline.files import expanded

# Dask tries for scale.wait seconds and then says why in words of its own; this much later nobody answered at all.
GRACE = 1.0
_PATIENCE = 2.0  # seconds for a client that has no connection to put away what it has
_ENCRYPTED = ("tls", "wss")


def connect(cluster: Any, settings: config.Scale) -> Any:
    """Return a client of `cluster`, which was started here, or else of ``scale.scheduler``.

    Raises
    ------
    ClusterError
        If the address is none, or nobody, or something else than a scheduler, answers there within ``scale.wait``
        seconds.
    """
    given: dict[str, Any] = {"set_as_default": False, "timeout": settings.wait}
    if cluster is not None:
        given["direct_to_workers"] = True  # they are on this machine: no detour by the scheduler
    else:
        security = _security(settings)
        why = _unfit(str(settings.scheduler), security)
        if why:
            raise _unreachable(settings, why)
        if security is not None:
            given["security"] = security
    try:
        return _started(settings.scheduler if cluster is None else cluster, given, settings.wait + GRACE)
    # There is no list of what Dask raises when something answers that is no scheduler: numbers that are sizes to it
    # (MemoryError, OverflowError), text that is no message (errors of msgpack), or an AssertionError.
    except Exception as error:
        why = " ".join(str(error).split())[:160] or type(error).__name__
        if cluster is not None:
            raise ClusterError(
                f"scale=dask: the workers started here do not answer ({why}); try again"
            ) from error
        raise _unreachable(settings, why) from error


def _unreachable(settings: config.Scale, why: str) -> ClusterError:
    return ClusterError(
        f"scale.scheduler={settings.scheduler}: no Dask scheduler can be reached there ({why}); start one: "
        "dask scheduler, and give the address that it prints"
    )


def _started(address: Any, given: dict[str, Any], limit: float) -> Any:
    """Return a connected client; one that fails is closed at once, not when the program ends."""
    from distributed import Client
    from distributed.utils import sync

    class Limited(Client):
        """Dask waits without a limit for what a scheduler says first."""

        def start(self, **options: Any) -> None:
            if self.status != "newly-created":
                return
            self._loop_runner.start()
            try:
                sync(self.loop, self._start, callback_timeout=limit, **options)
            except BaseException as error:
                _put_away(self)
                if isinstance(error, TimeoutError):
                    raise TimeoutError(f"nothing that a scheduler says within {limit - GRACE:g} s") from error
                raise

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of coroutines that a failure leaves behind
        return Limited(address, **given)


def _put_away(client: Any) -> None:
    with suppress(Exception):  # whatever it says of a connection that there is not, the first error counts
        client.close(timeout=_PATIENCE)
    client.status = "closed"  # else it tries again when it is collected, and nobody catches what that raises
    with suppress(Exception):
        client._loop_runner.stop()


def _security(settings: config.Scale) -> Any:
    """Return how the connection is encrypted; None: as Dask's own configuration says.

    Raises
    ------
    ClusterError
        If the files cannot be used.
    """
    if settings.tls_ca is None and settings.tls_cert is None:
        return None
    from distributed.security import Security

    names = {"tls_ca_file": settings.tls_ca, "tls_client_cert": settings.tls_cert,
             "tls_client_key": settings.tls_key or settings.tls_cert}  # fmt: skip
    files = {key: str(expanded(path)) for key, path in names.items() if path is not None}
    security = Security(require_encryption=True, **files)
    try:
        security.get_connection_args("client")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        named = {"tls_ca": settings.tls_ca, "tls_cert": settings.tls_cert, "tls_key": settings.tls_key}
        words = " ".join(f"scale.{name}={path}" for name, path in named.items() if path is not None)
        raise ClusterError(
            f"{words}: cannot be used to encrypt ({' '.join(str(error).split())[:120]}); give files in PEM format"
        ) from error
    return security


def _unfit(address: str, security: Any) -> str:
    """Return why nothing can be reached under an address, or nothing."""
    from distributed.comm.addressing import parse_address, parse_host_port
    from distributed.comm.registry import backends, get_backend
    from distributed.security import Security

    scheme, place = parse_address(address)
    usable = {"tcp", "tls", *(one for one in ("ws", "wss") if one in backends)}
    known = "expected tcp://HOST:PORT" + "".join(f", {one}://..." for one in sorted(usable - {"tcp"}))
    if scheme == "inproc":  # of threads of this process
        return "" if place.split("/")[1:2] == [str(os.getpid())] else f"inproc is for one process; {known}"
    if scheme not in usable:
        try:
            get_backend(scheme).get_connector()
        except Exception:  # unknown, or known and not usable: a package is missing, as with ucx
            return f"addresses {scheme}:// cannot be used here; {known}"
        return ""
    try:
        host, port = parse_host_port(place.split("/")[0])
    except ValueError:
        host, port = "", 0
    if not host or not 0 < port < 1 << 16:
        return f"no host with a port of 1 to 65535; {known}"
    if (
        scheme in _ENCRYPTED
        and (security or Security()).get_connection_args("client").get("ssl_context") is None
    ):
        return f"{scheme}:// needs certificates: give scale.tls_ca=, scale.tls_cert= and scale.tls_key="
    return ""
