"""Options of the many crops of one image that DINO compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ssl_vit.configs.facts import Range
from ssl_vit.configs.settled import OPEN, Resolved
from ssl_vit.core.errors import UserError


@dataclass(frozen=True)
class CropsConfig:
    """Multi-crop and its colour changes (Caron et al. 2021, section 3.1; numbers from the released code).

    Two global crops of the network's input and several smaller local ones; what makes no sense for the images (hue,
    saturation and grey unless they are 8-bit RGB, solarising unless they have 8 bits) is left out.
    """

    global_scale: Annotated[tuple[float, float] | None, Range(1e-6, 1)] = None
    """Area of a global crop as a share of the image (least, most); [1, 1] takes images whole. Default: the preset's;
    the paper's [0.4, 1]."""
    local_scale: Annotated[tuple[float, float] | None, Range(1e-6, 1)] = None
    """Area of a local crop as a share of the image (least, most). Default: the preset's; the paper's [0.05, 0.4]."""
    local_crops: Annotated[int | None, Range(0)] = None
    """Local crops per image, 0 for none. Default: the preset's; the paper's 8."""
    local_size: Annotated[int | None, Range(1)] = None
    """Side of a local crop in pixels, in whole patches. Default: the preset's; the paper's 96, of an input of 224."""
    ratio: Annotated[tuple[float, float], Range(0.001, 1000.0)] = (3 / 4, 4 / 3)
    """Width over height of a crop (least, most), drawn on a logarithmic scale; the paper's [3/4, 4/3]."""
    flip: bool | None = None
    """Mirror half of the crops left to right. Default: the preset's; the paper's true."""
    jitter: Annotated[float | None, Range(0, 5)] = None
    """Strength of the colour jitter, 0 for off: brightness and contrast change by up to 0.4 times this, saturation by
    0.2, hue by 0.1 turns, in a random order. Default: the preset's; the paper's 1."""
    jitter_chance: Annotated[float, Range(0, 1)] = 0.8
    """Chance that a crop is jittered; the paper's 0.8."""
    grey: Annotated[float, Range(0, 1)] = 0.2
    """Chance that a crop loses its colours; the paper's 0.2."""
    blur: Annotated[tuple[float, float, float] | None, Range(0, 1)] = None
    """Chances of a Gaussian blur: first global, second global and local crops. Default: the preset's; the paper's
    [1, 0.1, 0.5]."""
    blur_sigma: Annotated[tuple[float, float] | None, Range(0.001, 100)] = None
    """Deviation of the blur in pixels (least, most). Default: the preset's; the paper's [0.1, 2]."""
    solarise: Annotated[float | None, Range(0, 1)] = None
    """Chance that the second global crop is solarised: what is brighter than the middle of the range is inverted.
    Default: the preset's; the paper's 0.2."""


@dataclass(frozen=True)
class ResolvedCrops(CropsConfig, Resolved):
    """Multi-crop without open values."""

    global_scale: tuple[float, float] = OPEN
    local_scale: tuple[float, float] = OPEN
    local_crops: int = OPEN
    local_size: int = OPEN
    flip: bool = OPEN
    jitter: float = OPEN
    blur: tuple[float, float, float] = OPEN
    blur_sigma: tuple[float, float] = OPEN
    solarise: float = OPEN


def check_crops(cfg: CropsConfig) -> None:
    """Refuses ranges that are the wrong way round and crops of no area; values left open are no mistake.

    Raises:
        UserError: Naming the option.
    """
    for name in ("global_scale", "local_scale", "ratio", "blur_sigma"):
        pair = getattr(cfg, name)
        if pair is not None and not 0 < pair[0] <= pair[1]:
            raise UserError(f"--crops.{name} {list(pair)} must be two positive numbers, least first")
