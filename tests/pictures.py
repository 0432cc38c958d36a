"""Folders of small pictures, for the tests that read files."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from pipeline import config
from pipeline.config import DataName

SIZE = config.Image(8, 12)


def folder_data(path: Path, **options) -> config.Data:
    return config.Data(name=DataName.folder, path=str(path), **options)


def picture(path: Path, gray: int = 100, suffix: str = "PNG") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (6, 5), gray).save(path, suffix)
    return path


def two_classes_in(root: Path) -> Path:
    """Make 20 pictures in each of the folders a and b, no two alike."""
    for i in range(20):
        picture(root / "b" / f"{i:02d}.png", 2 * i)
        picture(root / "a" / f"{i:02d}.png", 2 * i + 1)
    return root
