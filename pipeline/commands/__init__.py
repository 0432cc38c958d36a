"""The commands, one file each: ``run(cfg, stages)`` does the work and returns its figure, if it has one."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """What a user is told about a command."""

    brief: str
    about: str
    examples: tuple[str, ...]


COMMANDS: dict[str, Command] = {
    "train": Command(
        "fit a classifier to labelled images, evaluate it and save it",
        "Reads labelled images, holds some out, computes HoG features, boosts a classifier, evaluates it on\n"
        "the held-out images and saves model, figures and plots in a new folder below runs/train, or in\n"
        "hydra.run.dir=FOLDER. plots=false leaves the plots out. data.path=P alone means data=auto.\n"
        "resume=FOLDER goes on with a run that was cut short, with its settings, to the same model.\n"
        "Log-loss is the mean of -ln(probability given to the true class): 0 is perfect.\n"
        "With --multirun the figure that comes back from each run is test.log_loss (smaller is better).",
        (
            "data=folder data.path=photos",
            "classifier=random_features preprocess=clahe",
            "--multirun classifier=subspace,ridge classifier.n_rounds=20,50",
            "resume=runs/train/2025-01-31_12-00-00-000000",
        ),
    ),
    "predict": Command(
        "label images with a saved model",
        "Labels a folder of images, one file or a packed set, and writes path, label and the probability of\n"
        "each class as CSV: out=FILE.csv, or predictions.csv in the run folder. Image size, preprocessing and\n"
        "HoG come from the model. chunk= images are in memory at a time. In a sweep out= must differ from job\n"
        "to job. scale=dask lets workers of this machine, or of scale.scheduler=tcp://..., label parts of the\n"
        "images; out= is then a folder of CSV files, or of Parquet files with format=parquet.",
        (
            "model=runs/train/2025-01-31_12-00-00-000000/model.npz data.path=photos",
            "model=model.npz data.path=one.jpg out=label.csv",
            "model=model.npz data.path=photos.npz chunk=256",
            "scale=dask model=model.npz data.path=photos out=labels format=parquet",
        ),
    ),
    "evaluate": Command(
        "figures of a saved model on labelled images, or a cross-validation",
        "With model=...: how well a saved model labels images whose classes are known. With split.folds=k:\n"
        "no model, but a cross-validation of the settings below.",
        (
            "model=model.npz data=folder data.path=photos",
            "split.folds=5 classifier=ridge",
            "split.folds=5 split=grouped data=folder data.path=signs",
        ),
    ),
    "profile": Command(
        "where the time of a train run goes, why, and what would shorten it",
        "Runs train several times under measurement and reports, stage by stage, seconds, cores, bytes,\n"
        "operations, the limits of this machine, the cause in words, and advice with its predicted gain. Writes\n"
        "profile.html (one page, no network), profile.json and trace.json (for Perfetto or speedscope) in the\n"
        "run folder. compare= runs the same work on several backends, sweep= shows how the cost grows.",
        (
            "data=folder data.path=photos",
            "compare=[reference,cpu]",
            "sweep=threads verify_advice=true",
        ),
    ),
    "pack": Command(
        "decode a folder of images once, so that later runs skip decoding",
        "Decodes a folder of class folders in parallel and writes one packed set. Files that cannot be read\n"
        "are listed in rejected.csv of the run folder. An older packed set at out= is replaced, no other file.",
        (
            "data.path=photos out=photos.npz",
            "data.path=photos out=photos.npz image.height=64 image.width=64",
            "data.path=photos out=photos.npz image=pad data.max_rejected=0.5",
        ),
    ),
    "plan": Command(
        "what a training run would cost on this or another machine: time, memory, money",
        "Tells before a run whether it fits, the seconds of each stage and which limit binds them, the cost with\n"
        "machine.price_per_hour=..., and from how many images on another machine pays. machine=this is measured\n"
        "with short runs of these settings and kept; every other machine is a FORECAST from its datasheet, never\n"
        "measured. machines=[t4,h200] puts several in one table. An entry of your own: a YAML file in a folder\n"
        "machine/ below --config-dir. Without data=... the images are synthetic, data.n of them; images=N plans\n"
        "for N images like those of data.path. Everything is also in plan.json of the run folder.",
        (
            "data.n=1000000 machine=h200",
            "machine=this data.n=40000 classifier.n_rounds=500",
            "'machines=[laptop_amd,server_amd,t4,l4,h200]' data.n=100000",
            "data.path=photos images=500000 machine=l4 machine.price_per_hour=0.8",
        ),
    ),
    "benchmark": Command(
        "ways to do the same work, timed against each other on this machine",
        "Times rows of a suite in turns, after checking the result of each: add_two (an array of 2 GB),\n"
        "monte_carlo_pi, layout (copies, views, orders), filter (a wide Gaussian), hog, and wls (the fits of a\n"
        "boosting round). Rows whose package or GPU is absent say so, with the command that installs it. Writes\n"
        "benchmark.json and benchmark.png in the run folder. Takes about two minutes; suite= and size=small\n"
        "take less.",
        ("", "suite=hog", "suite=[add_two,layout] size=small repeats=3 threads=1"),
    ),
    "doctor": Command(
        "what this machine has, and what is missing",
        "Reports processor, memory, BLAS, GPU, versions and disk space, and says what to install\n"
        "for what is missing.",
        ("", "backend.threads=1", "backend=reference"),
    ),
}
