"""Would a GPU help? A forecast for a run that was measured here, from a GPU's datasheet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipeline import config
from pipeline.profiling.cost import break_even
from pipeline.profiling.counts import counts
from pipeline.profiling.devices import DEVICE_START, of_gpu
from pipeline.profiling.machines import Measured
from pipeline.profiling.probes import StageModel, of_rounds
from pipeline.profiling.work import Work, describe

NEVER = "not for any number of images: what the GPU does not do takes longer than what it does"


@dataclass(frozen=True)
class Outlook:
    """A measured run, forecast on a GPU.

    Attributes
    ----------
    seconds : of the warm run on the GPU
    gain : seconds less than here
    pays_from : images from which on a process of its own is faster there, its start included; None: never
    words : the same for a person
    images : of the run
    """

    seconds: float
    gain: float
    pays_from: int | None
    words: str
    images: int

    @property
    def pays(self) -> bool:
        """Whether a process of its own with these images is faster there: only then is a GPU advised."""
        return self.pays_from is not None and self.images >= self.pays_from


def outlook(cfg: config.Train, work: Work, seconds: Mapping[str, float], machine: config.Machine) -> Outlook:
    """Return the forecast for a run of `cfg`.

    Parameters
    ----------
    work, seconds : of the warm run here, by stage and under "all"
    machine : entry of a GPU

    Notes
    -----
    Reading, decoding, splitting, scoring and saving take what they took. For other numbers of images every stage is
    taken as proportional to them.
    """
    import psutil

    per_image = {stage: value / work.images for stage, value in seconds.items() if stage != "all"}
    models = {
        stage: StageModel(per_image_round=each / work.rounds)
        if of_rounds(stage)
        else StageModel(per_image=each)
        for stage, each in per_image.items()
    }
    memory = int(psutil.virtual_memory().total)
    here = Measured(
        models=models,
        once=0.0,
        cores={},
        base_memory=0,
        memory=memory,
        processor="measured here",
        usable_cores=1,
        clock_ghz=0.0,
        classes=work.classes,
        source=work.source,
        file_bytes_per_image=work.file_bytes / work.images,
        images=(work.images,),
        rounds=(work.rounds,),
    )

    def there(n: int) -> float:
        size = replace(
            describe(
                cfg, backend="gpu", threads=work.threads, images=n, classes=work.classes, source=work.source
            ),
            rounds=work.rounds,
        )
        return of_gpu(machine, here, size, counts).seconds

    whole = seconds["all"]
    warm = max(there(work.images) - DEVICE_START, 0.0)
    from_on = break_even(there, lambda n: whole * n / work.images)
    pays = (
        NEVER
        if from_on is None
        else f"from some {from_on:,} images on, with {DEVICE_START:.0f} s to start it"
    )
    words = (
        f"{machine.name}: {warm:.2g} s instead of {whole:.2g} s, a forecast from its datasheet, never run. "
        f"In a process of its own it pays {pays}."
    )
    return Outlook(warm, whole - warm, from_on, words, work.images)
