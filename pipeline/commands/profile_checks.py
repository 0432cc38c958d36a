"""What ``profile`` refuses before anything is measured."""

from __future__ import annotations

from pipeline import config
from pipeline.errors import ConfigError
from pipeline.profiling import compare, machines, samples, stacks, sweeps
from pipeline.profiling.candidates_memory import would_fit
from pipeline.profiling.cause import size
from pipeline.profiling.footprint import footprint
from pipeline.profiling.work import PROGRAM, describe
from pipeline.scale import outofcore


def check(cfg: config.Profile, backend: str) -> None:
    """Refuse what cannot be done before anything is measured."""
    if cfg.scale.name is config.ScaleName.dask:
        raise ConfigError(
            "profile measures the work of one process, and scale=dask leaves it to others; use scale=local or "
            "scale=outofcore (Dask's own dashboard, which train scale=dask prints, shows its workers)"
        )
    sweeps.check(cfg.sweep)
    entry = config.machine(cfg.gpu, "gpu")
    machines.require(entry, cfg.gpu)
    if entry.kind is not config.MachineKind.gpu:
        raise ConfigError(
            f"gpu={cfg.gpu} is no GPU; give an entry of the group machine that is one, as in gpu=l4"
        )
    if cfg.scale.name is config.ScaleName.outofcore:
        outofcore.check(cfg, backend)
        _check_out_of_core(cfg)
    if cfg.compare:
        compare.absent(cfg, cfg.compare)
    if "reference" in cfg.compare and cfg.reduce.name is not config.ReduceName.none:
        raise ConfigError(
            "compare=reference measures a sample of the images and scales it up, which principal components do not "
            "allow; leave reference out of compare=, or reduce=pca out"
        )
    if cfg.stacks:
        stacks.require()
    _check_memory(cfg, backend)
    if cfg.split.folds:
        raise ConfigError(
            "split.folds is for evaluate; profile measures train: leave split=folds and split.folds= out"
        )


def _check_out_of_core(cfg: config.Profile) -> None:
    """Refuse what needs all images or features in memory."""
    if cfg.compare:
        raise ConfigError(
            "compare= compares features in memory, which scale=outofcore never has there; leave one of them out"
        )
    for one in {"images", "size"} & set(cfg.sweep):
        if cfg.data.name is not config.DataName.synthetic:
            raise ConfigError(
                f"sweep={one} needs the images in memory, which scale=outofcore leaves on disk; leave one of them out"
            )


def _check_memory(cfg: config.Profile, backend: str) -> None:
    """Refuse a run in memory that this machine cannot hold, as counted: the system would end it half-way."""
    if (
        backend != "cpu"
        or cfg.scale.name is not config.ScaleName.local
        or cfg.data.name is config.DataName.digits
    ):
        return
    source = samples.look(cfg.data, cfg.image)
    share = cfg.reduce.variance is not None  # how many components that takes, only the fit says: one at least
    work = describe(
        cfg,
        backend=backend,
        threads=1,
        images=source.images,
        classes=max(source.classes, 2),
        source=source.kind,
        components=1 if share else None,
    )
    need = footprint(work, PROGRAM, machines.memory())
    if need.fits:
        return
    found = would_fit(work, PROGRAM, need.host_memory)
    way = f"add {found[0]}" if found is not None else "use fewer images or hog=coarse"
    raise ConfigError(
        f"this run needs some {size(need.host)} of memory, and this machine has {size(need.host_memory)}: {way}"
    )
