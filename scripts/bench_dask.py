"""Two single-thread Dask workers against one local thread: seconds, bytes of a round, peak memory of each process.

    python scripts/bench_dask.py [--images 40000] [--rounds 50] [--repeats 3] [--workers 2] [--learner subspace]

Synthetic images of 50 x 100 pixels in 10 classes, HoG of 3240 features. The two take turns; medians are shown. Workers
are started once and not counted: a cluster is there before a run. Needs the extra dask.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from pipeline import config
from pipeline.commands import train
from pipeline.reporting.progress import silent
from pipeline.reporting.stages import Stages
from pipeline.scale import dask_cluster, dask_crew, wire


def settings(arguments: argparse.Namespace, folder: Path, scale: config.Scale) -> config.Train:
    """Return the settings of a run."""
    folder.mkdir()
    return config.Train(
        data=config.Data(name=config.DataName.synthetic, n=arguments.images, workers=1),
        backend=config.Backend(threads=1),
        classifier=config.Classifier(
            learner=config.Learner[arguments.learner], n_rounds=arguments.rounds, random_state=0
        ),
        run_dir=str(folder),
        plots=False,
        scale=scale,
    )


class Peaks:
    """The largest resident memory of this process and of its children, as the system keeps it.

    Looked at every two seconds, for children that end: looking costs a processor that the workers need.
    """

    def __init__(self) -> None:
        self.found: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._stop.wait(2.0):
            self.look()

    def look(self) -> None:
        """Note what the system says now."""
        here = psutil.Process()
        for number, one in enumerate([here, *here.children(recursive=True)]):
            try:
                name = "driver" if number == 0 else f"{one.name()} {one.pid}"
                self.found[name] = max(self.found.get(name, 0), _peak(one))
            except psutil.NoSuchProcess:
                continue

    def __enter__(self) -> Peaks:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()


def _peak(process: psutil.Process) -> int:
    """Return the most bytes a process has had in memory; without Linux those it has now."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except OSError:
        return process.memory_info().rss
    kilobytes = next((line.split()[1] for line in lines if line.startswith("VmHWM")), None)
    return process.memory_info().rss if kilobytes is None else 1024 * int(kilobytes)


class Watched:
    """Exchanges of all crews: how many, how long, how many bytes."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.crew: Any = None
        ask = dask_crew.Crew.ask

        def asked(crew: Any, order: wire.Order) -> Any:
            begin = time.perf_counter()
            answer = ask(crew, order)
            self.seconds.append(time.perf_counter() - begin)
            self.crew = crew
            return answer

        dask_crew.Crew.ask = asked  # type: ignore[method-assign, assignment]


def once(arguments: argparse.Namespace, folder: Path, scale: config.Scale) -> tuple[dict[str, float], float]:
    """Train once; return the seconds of the stages and the log-loss on the images held out."""
    stages = Stages()
    with silent():
        trained = train.train(settings(arguments, folder, scale), stages)
    return stages.seconds, trained.scores.log_loss


def work(seconds: dict[str, float]) -> float:
    """Return the seconds of a run that grow with the images."""
    return sum(value for key, value in seconds.items() if key not in ("start", "cluster", "save"))


def traffic(cluster: Any) -> int:
    """Return the bytes that workers have sent to each other and to the driver."""
    found = cluster.client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total)
    return sum(found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--images", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--learner", default="subspace", choices=[one.name for one in config.Learner])
    arguments = parser.parse_args()
    ours = config.Scale(name=config.ScaleName.dask, workers=arguments.workers, memory_limit=None)
    watched = Watched()
    local, dask, sent = [], [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        Peaks() as peaks,
        dask_cluster.connected(ours, "cpu") as cluster,
    ):
        there = config.Scale(
            name=config.ScaleName.dask, scheduler=cluster.address, memory_limit=None, partitions=None
        )
        for repeat in range(arguments.repeats + 1):  # the first of each compiles and warms up
            found = once(arguments, Path(folder) / f"local{repeat}", config.Scale())
            before, watched.seconds = traffic(cluster), []
            other = once(arguments, Path(folder) / f"dask{repeat}", there)
            if repeat:
                local.append(found)
                dask.append(other)
                sent.append(traffic(cluster) - before + watched.crew.straight)
        peaks.look()
    report(arguments, local, dask, watched, sent)
    print("peak memory: " + ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in peaks.found.items()))


def report(arguments: Any, local: list, dask: list, watched: Watched, sent: list[int]) -> None:
    """Print the medians."""
    rows = [("local, 1 thread", local), (f"dask, {arguments.workers} workers", dask)]
    for name, runs in rows:
        stages = {key: statistics.median(run[0].get(key, 0.0) for run in runs) for key in runs[0][0]}
        line = "  ".join(f"{key} {value:.2f}" for key, value in stages.items())
        print(f"{name:16} {statistics.median(work(run[0]) for run in runs):7.2f} s   {line}")
    ratios = [work(a[0]) / work(b[0]) for a, b in zip(local, dask, strict=True)]
    boost = [a[0]["boost"] / b[0]["boost"] for a, b in zip(local, dask, strict=True)]
    print(f"faster by {statistics.median(ratios):.2f} (boosting alone {statistics.median(boost):.2f})")
    print(f"log-loss differs by {max(abs(a[1] - b[1]) for a, b in zip(local, dask, strict=True)):.1e}")
    down, up = watched.crew.exchanged
    rounds = len(watched.seconds) - 2  # the moments and the first sums come before
    up -= 2 * 8 * 3240  # the moments
    print(
        f"an exchange takes {1e3 * float(np.median(watched.seconds)):.0f} ms; {down / rounds:.0f} bytes down and "
        f"{up / rounds:.0f} up a round; workers sent {statistics.median(sent) / 1e6:.1f} MB in all"
    )
    if arguments.learner == "subspace":
        paper = 8 * wire.numbers_down(128, 10, True), 8 * wire.numbers_up(128, 10, 10)
        print(f"on paper: {paper[0]} down, {paper[1]} up")


if __name__ == "__main__":
    main()
