"""Settings that have no effect with the choices made: which, and to which choice each belongs.

Seeds are not among them: a learner that draws nothing is the same with any.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple

from pipeline.groups.choices import (
    BackendName,
    DataName,
    FloatType,
    Learner,
    MachineKind,
    PreprocessName,
    ScaleName,
)


class Unused(NamedTuple):
    """A setting without effect, the choice or choices that it belongs to, and the one that was made.

    Of one that is `fixed` by what was given, as by a saved model, the default is no less a mistake: the model may have
    another value.
    """

    key: str
    belongs: str
    found: str
    fixed: bool = False


DATASHEET = (
    *(
        "name",
        "bandwidth_gb_s",
        "fp32_tflops",
        "fp64_tflops",
        "tensor_tflops",
        "link_gb_s",
        "multiprocessors",
    ),
    *("cores", "clock_ghz", "power_watts", "year", "source", "host_memory_gb"),
)
OF_A_GPU = ("tensor_tflops", "link_gb_s", "multiprocessors", "host_memory_gb")
# What a saved model fixes, by the groups.
OF_THE_MODEL = {
    "image": "the size of the images",
    "preprocess": "the preprocessing",
    "hog": "the HoG features",
    "reduce": "the reduction",
    "classifier": "the classifier",
}
WITHOUT_DEVICE = {"layout"}  # suites of benchmark
OF_DASK = ("scheduler", "workers", "threads", "processes", "wait", "timeout", "tls_ca", "tls_cert", "tls_key")


def unused(settings: Any, command: str) -> dict[str, Unused]:
    """Return the settings of a command that its choices leave without effect, by their names.

    Parameters
    ----------
    settings : one of the dataclasses of :mod:`pipeline.config`
    command : its name
    """
    found: dict[str, Unused] = {}
    for rule in RULES:
        for one in rule(settings, command):
            found.setdefault(one.key, one)
    return found


def _data(settings: Any, command: str) -> Iterator[Unused]:
    data = getattr(settings, "data", None)
    if data is None:
        return
    name, now = data.name, f"data={data.name.name}"
    if name is DataName.auto and data.path:
        now = f"data.path={data.path}"
        if data.path.lower().endswith((".npz", ".npy")) and os.path.isfile(os.path.expanduser(data.path)):
            name = DataName.packed
    if name is not DataName.synthetic:
        for key in ("n", "classes", "difficulty", "seed"):
            yield Unused(f"data.{key}", "data=synthetic", now)
    elif command == "plan" and settings.images is not None:
        yield Unused("data.n", "plan without images=", f"images={settings.images}")
    if name in (DataName.digits, DataName.packed, DataName.synthetic):
        for key in ("max_rejected", "max_pixels"):
            yield Unused(f"data.{key}", "data=folder", now)
    if name in (DataName.digits, DataName.packed):
        yield Unused("data.workers", "data=folder and data=synthetic", now)
    if name in (DataName.packed, DataName.synthetic) and hasattr(settings, "image"):
        yield Unused("image.fit", "data=folder and data=digits", now)


def _preprocess(settings: Any, command: str) -> Iterator[Unused]:
    step = getattr(settings, "preprocess", None)
    if step is None:
        return
    owners = {
        "percentiles": (PreprocessName.stretch,),
        "sigma": (PreprocessName.gaussian,),
        "nbins": (PreprocessName.equalize, PreprocessName.clahe),
        "clip_limit": (PreprocessName.clahe,),
        "kernel_size": (PreprocessName.clahe,),
    }
    for key, names in owners.items():
        if step.name not in names:
            belongs = " and ".join(f"preprocess={one.name}" for one in names)
            yield Unused(f"preprocess.{key}", belongs, f"preprocess={step.name.name}")


def _classifier(settings: Any, command: str) -> Iterator[Unused]:
    given = getattr(settings, "classifier", None)
    if given is None or getattr(settings, "model", None):  # a saved model is what it is
        return
    now = f"classifier={given.learner.name}"
    if given.learner is not Learner.subspace:
        yield Unused("classifier.subspace_size", "classifier=subspace", now)
    if given.learner is not Learner.random_features:
        for key in ("n_components", "gamma"):
            yield Unused(f"classifier.{key}", "classifier=random_features", now)
    if given.learner is Learner.componentwise or (given.learner is Learner.full and given.l2 != 0.0):
        yield Unused("classifier.l2", "classifier=ridge, subspace and random_features", now)
    if not given.early_stopping:
        for key in ("classifier.patience", "split.validation"):
            yield Unused(key, "classifier.early_stopping=true", "classifier.early_stopping=false")
    key = "classifier.gram_precision"
    if given.learner is Learner.componentwise:
        yield Unused(key, "learners that build Gram matrices", now)
    if given.dtype is FloatType.float64:
        yield Unused(key, "classifier.dtype=float32", "classifier.dtype=float64")
    backend = settings.backend.name
    if command in ("train", "evaluate") and backend in (BackendName.cpu, BackendName.reference):
        yield Unused(key, "backend=gpu", f"backend={backend.name}")


def _saved_model(settings: Any, command: str) -> Iterator[Unused]:
    """Yield what ``evaluate model=`` takes from the model, groups and experiments too, and what only a split needs."""
    model = getattr(settings, "model", None)
    if command != "evaluate" or not model or settings.split.folds:  # a model and folds exclude each other
        return
    belongs = "evaluate split.folds=5, which cross-validates"
    for group, what in OF_THE_MODEL.items():
        now = f"model={model}, which fixes {what}"
        yield Unused(group, belongs, now, fixed=True)
        for one in fields(getattr(settings, group)):
            yield Unused(f"{group}.{one.name}", belongs, now, fixed=True)
    now = f"model={model}, which is scored on all images"
    yield Unused("split", belongs, now, fixed=True)
    for key in ("seed", "group_by", "validation"):
        yield Unused(f"split.{key}", belongs, now, fixed=True)
    yield Unused("split.test", "train", now, fixed=True)
    yield Unused("experiment", belongs, f"model={model}, which fixes what experiments choose", fixed=True)


def _split(settings: Any, command: str) -> Iterator[Unused]:
    if command == "evaluate" and settings.split.folds:
        yield Unused("split.test", "train", f"split.folds={settings.split.folds}: each fold is held out once")


def _scale(settings: Any, command: str) -> Iterator[Unused]:
    scale = getattr(settings, "scale", None)
    if scale is None:
        return
    now = f"scale={scale.name.name}"
    if scale.name is not ScaleName.outofcore:
        yield Unused("scale.store", "scale=outofcore", now)
    if scale.name is ScaleName.local:
        for key in ("memory_limit", "partitions"):
            yield Unused(f"scale.{key}", "scale=outofcore and scale=dask", now)
    if scale.name is not ScaleName.dask:
        for key in OF_DASK:
            yield Unused(f"scale.{key}", "scale=dask", now)
    elif scale.scheduler is not None:
        for key in ("threads", "processes"):
            yield Unused(
                f"scale.{key}", "scale=dask without scale.scheduler", f"scale.scheduler={scale.scheduler}"
            )


def _backend(settings: Any, command: str) -> Iterator[Unused]:
    backend = getattr(settings, "backend", None)
    if backend is None or command == "doctor" or "gpu" in getattr(settings, "compare", ()):
        return
    if backend.name in (BackendName.cpu, BackendName.reference):
        yield Unused("backend.device", "backend=gpu", f"backend={backend.name.name}")
    if command == "plan" and (settings.machines or settings.machine.kind is not MachineKind.this):
        yield Unused("backend.device", "machine=this", "machines of a datasheet")
    if command == "predict" and settings.scale.name is ScaleName.dask:
        yield Unused("backend.threads", "scale=local", "scale=dask, whose workers have threads of their own")


def _profile(settings: Any, command: str) -> Iterator[Unused]:
    if command != "profile":
        return
    if settings.scale.name is ScaleName.outofcore:  # is the processor's
        yield Unused("gpu", "scale=local", "scale=outofcore")
    if settings.backend.name is BackendName.gpu:
        yield Unused("gpu", "backend=cpu", "backend=gpu, which is measured")
    if settings.advice or settings.verify_advice:
        return
    for key in ("memory", "gpu"):
        yield Unused(key, "advice=true", "advice=false")
    if not settings.sweep and not settings.compare:
        yield Unused("budget", "advice=true, sweep= and compare=", "advice=false")


def _benchmark(settings: Any, command: str) -> Iterator[Unused]:
    if command == "benchmark" and set(settings.suite) <= WITHOUT_DEVICE:
        yield Unused("device", "suites with rows of a GPU", f"suite={','.join(settings.suite)}")


def _machine(settings: Any, command: str) -> Iterator[Unused]:
    machine = getattr(settings, "machine", None)
    if machine is None:
        return
    if settings.machines:
        now = "machines=[" + ",".join(settings.machines) + "]"
        for key in DATASHEET:
            yield Unused(f"machine.{key}", "a single machine=, as in machine=h200", now)
    if machine.kind is MachineKind.this:
        for key in DATASHEET:
            yield Unused(
                f"machine.{key}",
                "machines of a datasheet, as in machine=h200",
                "machine=this, which is measured",
            )
    if machine.kind is MachineKind.cpu:
        for key in OF_A_GPU:
            yield Unused(f"machine.{key}", "machines that are a GPU", f"machine.name={machine.name}")


RULES = (
    *(_saved_model, _data, _preprocess, _classifier, _split, _scale, _backend, _profile, _benchmark),
    _machine,
)
