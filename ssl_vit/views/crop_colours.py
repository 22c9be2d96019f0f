"""The colour changes of DINO's crops in batches: every crop has its own draws, and its own order of the jitter.

Pixels are in [0, 1]. Crops are grouped by the operation of a step: what a crop did not draw is not computed for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ssl_vit.configs import ResolvedCrops
from ssl_vit.core.randomness import Key, uniform
from ssl_vit.data.constants import sent
from ssl_vit.views import colour

_JITTER = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.2, "hue": 0.1}
"""Largest change at strength 1: of a factor around 1, of hue in turns."""
OPERATIONS = (*_JITTER, "blur", "grey", "solarise")
_NUMBER = {name: i for i, name in enumerate(OPERATIONS)}
_NOTHING = len(OPERATIONS)
# Three channels of 16 bits are a microscope's or a satellite's, not red, green and blue.
_ALL = colour.Operations("Crops leave", OPERATIONS, ("saturation", "hue", "grey"), ("solarise",), deep_rgb=False)
operations, notice = _ALL.sensible, _ALL.notice
NUMBERS = 13
"""Uniform numbers per crop: four amounts of jitter and one of blur, four for the order, four chances."""
_NARROWEST = 1 / 6
"""A blur of less deviation, in pixels, gives a neighbour less weight than rounding does: it is left out."""

Rows = list[list[Int[Tensor, " _"]]]
"""For every step, for every operation: the crops that have it there."""


class Draws(NamedTuple):
    """What happens to each of N crops."""

    steps: Int[Tensor, "P N"]
    """What each step does, as a place in ``OPERATIONS``; one past the last for nothing."""
    values: Float[Tensor, "K N"]
    """By how much each operation would change the crop: a factor, turns of hue, pixels of blur; 0 for the others."""


def draw(
    u: Float[Tensor, "N numbers"],
    view: Int[Tensor, " N"],
    cfg: ResolvedCrops,
    names: tuple[str, ...],
    jitter: Mapping[str, float] = _JITTER,
) -> Draws:
    """From uniform numbers to operations and amounts.

    ``view`` is 0 for the first global crop, 1 for the second, more for local ones: their chances differ. ``names`` may
    be drawn, as ``operations`` has it; ``jitter`` is the largest change of each part of it at strength 1.
    """
    amount, order, chance = u[:, :5].T, u[:, 5:9], u[:, 9:].T
    most = {name: change * cfg.jitter for name, change in jitter.items()}
    ranges = [(-m, m) if name == "hue" else (max(0.0, 1.0 - m), 1.0 + m) for name, m in most.items()]
    ends = zip([*ranges, cfg.blur_sigma], amount, strict=True)
    values = [low + (high - low) * drawn for (low, high), drawn in ends]
    sigma = values[4]
    values += [torch.zeros_like(sigma), torch.zeros_like(sigma)]
    first, second, local = cfg.blur
    blurred = chance[2] < first * (view == 0) + second * (view == 1) + local * (view > 1)
    steps: list[Tensor] = []
    if cfg.jitter:
        several = sum(name in names for name in jitter)  # those that may be drawn stand first
        places = order[:, :several].argsort(dim=1).T
        steps += list(torch.where(chance[0] < cfg.jitter_chance, places, _NOTHING))
    for name, applied in (
        ("grey", chance[1] < cfg.grey),
        ("blur", blurred & (sigma >= _NARROWEST)),
        ("solarise", (chance[3] < cfg.solarise) & (view == 1)),
    ):
        if name in names:
            steps.append(torch.where(applied, _NUMBER[name], _NOTHING))
    return Draws(torch.stack(steps), torch.stack(values))


def group(steps: Int[Tensor, "P N"], device: torch.device) -> Rows:
    """Sorts crops into groups of one operation each, at every step: from the host, for where they are needed."""
    kinds = torch.arange(_NOTHING + 1)
    counts = (steps[:, None] == kinds[:, None]).sum(dim=2).tolist()
    order = sent(steps.argsort(dim=1), device)
    return [list(row.split(sizes))[:_NOTHING] for row, sizes in zip(order, counts, strict=True)]


def apply(
    images: Float[Tensor, "N C H W"], values: Float[Tensor, "K N"], rows: Rows, *, bits: int, widest: float
) -> None:
    """In place: the jitter in each crop's own order, then grey, blur and solarising, as torchvision defines them.

    Args:
        images: Pixels in [0, 1].
        values: By how much each operation would change each crop, as in ``Draws``.
        rows: Which crops have which operation at which step.
        bits: Bits per channel of the files.
        widest: Largest deviation of a blur in pixels.
    """
    changes: list[Callable[[Tensor, Tensor], Tensor]] = [
        colour.brightness,
        partial(colour.contrast, rgb=images.shape[1] == 3 and bits == 8),
        colour.saturation,
        colour.hue,
        partial(colour.blur_by_products, reach=math.ceil(3.0 * widest)),
        lambda part, _: colour.grey(part),
        lambda part, _: colour.solarise(part),
    ]
    for groups in rows:
        for change, value, crops in zip(changes, values.unbind(), groups, strict=True):
            if len(crops):
                images[crops] = change(images.index_select(0, crops), value.index_select(0, crops))


_EVEN = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.2}
_SOME = ResolvedCrops(
    global_scale=(1.0, 1.0), local_scale=(1.0, 1.0), local_crops=0, local_size=1, flip=False, jitter=1.0,
    jitter_chance=0.3, grey=0.2, blur=(0.2, 0.0, 0.0), blur_sigma=(0.1, 2.0), solarise=0.0,
)  # fmt: skip


def jitter_some(key: Key, images: Float[Tensor, "B C S S"], *, bits: int, host: Key) -> Float[Tensor, "B C S S"]:
    """In place: three images in ten are jittered, a fifth become grey and a fifth are blurred.

    Args:
        key: One random stream per sample.
        images: Pixels in [0, 1].
        bits: Bits per channel of the files.
        host: The same streams on the host, so that the device need not be waited for.
    """
    names = operations(images.shape[1], bits)
    drawn, told = (draw(uniform(k, NUMBERS), torch.zeros_like(k.low), _SOME, names, _EVEN) for k in (key, host))
    apply(images, drawn.values, group(told.steps, images.device), bits=bits, widest=_SOME.blur_sigma[1])
    return images
