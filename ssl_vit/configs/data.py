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
    Default: no crop up to 16 pixels, else [0.2, 1] for MAE and [0.35, 1] for training on labels (MAE's own fine-tuning
    crops [0.08, 1], for 100 epochs on 1.3 million images)."""
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Width over height of a crop (least, most), drawn on a logarithmic scale."""
    flip: bool | None = None
    """Mirror half of the images left to right; default: only above 16 pixels."""
    policy: Literal["none", "3-augment", "randaugment"] | None = None
    """Changes of intensity, colour and (RandAugment) geometry: RandAugment as MAE fine-tunes with (2 of 15 operations,
    each applied with a chance of one half), or DeiT III's 3-Augment (one of grey, solarise, blur) with brightness and
    contrast jitter. Default: randaugment when training on labels above 16 pixels, else none. Operations that make no
    sense for the images (not RGB, not 8-bit) are left out."""
    magnitude: float = 9.0
    """RandAugment's mean magnitude, in [0, 10]; every operation draws its own with deviation 0.5."""
    erasing: float | None = None
    """Chance that a box of an image (2 % to a third of its area) becomes noise, only when training on labels;
    default: MAE's 0.25 above 16 pixels, else 0."""
