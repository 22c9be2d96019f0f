"""Options for images: where they are, how they are read, how they are varied in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class DataConfig:
    """The pool of images to train on."""

    path: str = "digits"
    """A folder of images, a parquet file or folder of them, or "digits" (scikit-learn's, no download)."""
    image_column: str | None = None
    """Parquet column with the images; default: the only one that can hold images."""
    label_column: str | None = None
    """Parquet column with the labels; default: label, labels, class, target or the only ClassLabel column."""
    canvas: int | None = None
    """Side in pixels of the square that images of different sizes are decoded to (crops are still drawn in original
    coordinates); default: between the model's image size and twice that, from the images' median short side."""
    window: int | None = None
    """Train on random windows of this many pixels a side, at native scale, for very large images; evaluation then reads
    the central window. Decoded images are then not kept in memory. Default: images are taken whole."""
    cache: Literal["auto", "ram", "none"] = "auto"
    """Keep decoded images in memory: auto does so when they fill less than half of what is free."""
    workers: int | None = None
    """Processes that decode images when they are not cached; default: one fewer than the CPU cores per process."""


@dataclass(frozen=True)
class LoadingConfig:
    """How images are loaded; which ones is decided elsewhere."""

    cache: Literal["auto", "ram", "none"] = "auto"
    """Keep decoded images in memory: auto does so when they fill less than half of what is free."""
    workers: int | None = None
    """Processes that decode images when they are not cached; default: one fewer than the CPU cores per process."""


@dataclass(frozen=True)
class LabelledDataConfig:
    """The labelled images to judge on."""

    path: str | None = None
    """As --data.path, but labelled; default: the images of the run itself."""
    image_column: str | None = None
    """Parquet column with the images."""
    label_column: str | None = None
    """Parquet column with the labels."""


@dataclass(frozen=True)
class AugmentConfig:
    """Random variation of training images; every None is chosen from the image size and printed."""

    crop_scale: tuple[float, float] | None = None
    """Area of the random resized crop as a share of the image (least, most); [1, 1] switches cropping off.
    Default: no crop up to 16 pixels, else [0.2, 1] for MAE and [0.35, 1] for training on labels."""
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Width over height of a crop (least, most), drawn on a logarithmic scale."""
    flip: bool | None = None
    """Mirror half of the images left to right; default: only above 16 pixels."""
    colour: bool | None = None
    """3-Augment of DeiT III (one of grey, solarise, blur) and brightness/contrast jitter; default: only when training
    on labels above 16 pixels. Grey and solarise are left out where they make no sense (not RGB, not 8-bit)."""
