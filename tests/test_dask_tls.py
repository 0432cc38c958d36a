"""A cluster that encrypts: certificates of an authority of our own, its scheduler and a worker in processes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.programs import environment, python_m
from tests.test_dask_faults import MADE, WORDS, told
from tests.test_resume import contents

pytest.importorskip("distributed")

SLOW = 60.0  # seconds within which a process must be there


def certificates(folder: Path) -> list[str]:
    """Make an authority and a certificate that it signed; return how Dask's own programs are told of them."""
    subject = ["-subj", "/CN=localhost"]
    new = ["openssl", "req", "-newkey", "rsa:2048", "-nodes"]
    for command in (
        [*new, "-x509", "-days", "2", "-keyout", "ca-key.pem", "-out", "ca.pem", "-subj", "/CN=tests"],
        [*new, "-keyout", "key.pem", "-out", "request.pem", *subject],
        ["openssl", "x509", "-req", "-days", "2", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca-key.pem",
         "-CAcreateserial", "-out", "cert.pem"],
    ):  # fmt: skip
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    files = {"--tls-ca-file": "ca.pem", "--tls-cert": "cert.pem", "--tls-key": "key.pem"}
    return [word for flag, name in files.items() for word in (flag, str(folder / name))]


@pytest.fixture
def address(tmp_path):
    """The address of a scheduler that speaks TLS only, with one worker."""
    if shutil.which("openssl") is None:
        pytest.skip("makes certificates with openssl, which is not installed")
    files, place = certificates(tmp_path), tmp_path / "scheduler.json"
    quietly = {
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "env": environment(),
        "cwd": tmp_path,
    }
    dask = [sys.executable, "-m", "distributed.cli"]
    scheduler = [f"{dask[-1]}.dask_scheduler", "--protocol", "tls", "--host", "127.0.0.1", "--port", "0",
                 "--no-dashboard", "--scheduler-file", str(place), *files]  # fmt: skip
    with ExitStack() as stack:

        def start(words: list[str]) -> subprocess.Popen:
            running = subprocess.Popen([*dask[:-1], *words], **quietly)
            stack.callback(running.wait)
            stack.callback(running.kill)
            return running

        running, deadline = start(scheduler), time.monotonic() + SLOW
        while not place.exists() or not place.read_text().rstrip().endswith("}"):
            assert running.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        found = json.loads(place.read_text())["address"]
        start([f"{dask[-1]}.dask_worker", found, "--no-nanny", "--nthreads", "1", "--no-dashboard",
               "--protocol", "tls", "--death-timeout", "60", *files])  # fmt: skip
        yield found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="starts programs as POSIX does")
def test_training_on_a_cluster_that_encrypts(address, tmp_path):
    """It works with certificates, to the model of workers that are started here; without them it is told in a line."""
    assert address.startswith("tls://")
    words = ["train", *WORDS, *MADE, "scale=dask", "scale.partitions=2"]
    there = [f"scale.scheduler={address}", "scale.wait=30"]
    given = [
        f"scale.tls_ca={tmp_path}/ca.pem",
        f"scale.tls_cert={tmp_path}/cert.pem",
        f"scale.tls_key={tmp_path}/key.pem",
    ]
    run = python_m(*words, *there, *given, "hydra.run.dir=encrypted", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert f"Dask at {address}: 1 worker" in " ".join(run.stdout.split())
    run = python_m(*words, "scale.processes=false", "scale.workers=1", "hydra.run.dir=plain", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert contents(tmp_path / "encrypted" / "model.npz") == contents(tmp_path / "plain" / "model.npz")

    plain = address.replace("tls://", "tcp://")
    for name, more in (
        ("unencrypted", [f"scale.scheduler={plain}", "scale.wait=3"]),
        ("mixed", [f"scale.scheduler={plain}", "scale.wait=3", *given]),
        ("unknown", [f"scale.scheduler={address}", "scale.wait=3"]),
    ):
        run = python_m(*words, *more, f"hydra.run.dir={name}", cwd=tmp_path)
        assert run.returncode == 2
        [line] = told(run.stderr)
        assert line.startswith(f"pipeline train: {more[0]}: no Dask scheduler can be reached there ("), line
        assert not (tmp_path / name / "model.npz").exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="starts programs as POSIX does")
def test_a_certificate_of_another_authority_is_refused(address, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    certificates(other)
    given = [
        f"scale.tls_ca={other}/ca.pem",
        f"scale.tls_cert={other}/cert.pem",
        f"scale.tls_key={other}/key.pem",
    ]
    words = ["train", *WORDS, *MADE, "scale=dask", f"scale.scheduler={address}", "scale.wait=3", *given]
    run = python_m(*words, "hydra.run.dir=refused", cwd=tmp_path)
    assert run.returncode == 2
    [line] = told(run.stderr)
    assert f"scale.scheduler={address}: no Dask scheduler can be reached there (" in line
