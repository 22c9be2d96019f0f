"""The colour changes of DINO's crops in batches: every crop has its own draws, and its own order of the jitter.

Pixels are in [0, 1]. Crops are grouped by the operation of a step: what a crop did not draw is not computed for it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
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

_AFTER = ("grey", "blur", "solarise")
"""What follows the jitter, in this order."""
_COURSE = (0, 1, 2, 3, 0, 1, 2, 0, 3, 1, 2, 0)
"""Operations of the jitter one after the other, so that each of the 24 orders is among them: no shorter row has them
all. The last one, hue, costs most and comes twice."""


class Change(NamedTuple):
    """One operation and the crops that have it, all at once."""

    operation: int
    crops: Int[Tensor, " n"]
    values: Float[Tensor, " n"]


class Draws(NamedTuple):
    """What happens to each of N crops."""

    steps: Int[Tensor, "P N"]
    """What each step does, as a place in ``OPERATIONS``; one past the last for nothing."""
    values: Float[Tensor, "K N"]
    """By how much each operation would change the crop: a factor, turns of hue, pixels of blur; 0 for the others."""
    jittered: int
    """How many of the steps, the first ones, are the jitter's."""


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
    several = sum(name in names for name in jitter) if cfg.jitter else 0  # those that may be drawn stand first
    if several:
        places = order[:, :several].argsort(dim=1).T
        steps += list(torch.where(chance[0] < cfg.jitter_chance, places, _NOTHING))
    grey, solarised = chance[1] < cfg.grey, (chance[3] < cfg.solarise) & (view == 1)
    for name, applied in zip(_AFTER, (grey, blurred & (sigma >= _NARROWEST), solarised), strict=True):
        if name in names:
            steps.append(torch.where(applied, _NUMBER[name], _NOTHING))
    return Draws(torch.stack(steps), torch.stack(values), several)


@lru_cache
def _places(several: int) -> Int[Tensor, "Q J"]:
    """Where in ``_COURSE`` each operation of an order stands; the order's number has ``several`` as its base."""
    places = torch.zeros((several**several, several), dtype=torch.int64)
    for order in itertools.permutations(range(several)):
        number, place = 0, -1
        found: list[int] = []
        for operation in order:
            number, place = number * several + operation, _COURSE.index(operation, place + 1)
            found.append(place)
        places[number] = torch.tensor(found)
    return places


def group(draws: Draws, device: torch.device) -> list[Change]:
    """What is to be done, in order: what several crops have is done for all of them at once.

    Drawn on the host, for images on a device.
    """
    steps, several = draws.steps, draws.jittered
    kinds = (*_COURSE, *(_NUMBER[name] for name in _AFTER))
    when = torch.tensor([kinds.index(i) for i in range(_NOTHING)] + [len(kinds)])[steps]
    if several:
        order = steps[:several]
        number = (order.T * torch.tensor([several**i for i in reversed(range(several))])).sum(dim=1)
        jittered = order[0] < several
        when[:several] = torch.where(jittered, _places(several)[number * jittered].T, len(kinds))
    flat = when.flatten()
    sizes = torch.bincount(flat, minlength=len(kinds) + 1).tolist()
    places = flat.argsort(stable=True)[: len(flat) - sizes[-1]]
    crops = places % steps.shape[1]
    values = draws.values[steps.flatten()[places], crops]
    parts = zip(kinds, sent(crops, device).split(sizes[:-1]), sent(values, device).split(sizes[:-1]), strict=True)
    return [Change(*part) for part in parts if len(part[1])]


def apply(images: Float[Tensor, "N C H W"], changes: list[Change], *, bits: int, widest: float) -> None:
    """In place: the jitter in each crop's own order, then grey, blur and solarising, as torchvision defines them.

    Args:
        images: Pixels in [0, 1].
        changes: As ``group`` gives them.
        bits: Bits per channel of the files.
        widest: Largest deviation of a blur in pixels.
    """
    operations: list[Callable[[Tensor, Tensor], Tensor]] = [
        colour.brightness,
        partial(colour.contrast, rgb=images.shape[1] == 3 and bits == 8),
        colour.saturation,
        colour.hue,
        partial(colour.blur_by_products, reach=math.ceil(3.0 * widest)),
        lambda part, _: colour.grey(part),
        lambda part, _: colour.solarise(part),
    ]
    for operation, crops, values in changes:
        images[crops] = operations[operation](images.index_select(0, crops), values)


_EVEN = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.2}
_SOME = ResolvedCrops(
    global_scale=(1.0, 1.0), local_scale=(1.0, 1.0), local_crops=0, local_size=1, flip=False, jitter=1.0,
    jitter_chance=0.3, grey=0.2, blur=(0.2, 0.0, 0.0), blur_sigma=(0.1, 2.0), solarise=0.0,
)  # fmt: skip


jitter_notice = _ALL._replace(who="The jitter leaves", names=tuple(n for n in OPERATIONS if n != "solarise")).notice


def jitter_some(key: Key, images: Float[Tensor, "B C S S"], *, bits: int) -> Float[Tensor, "B C S S"]:
    """In place: three images in ten are jittered, a fifth become grey and a fifth are blurred.

    Args:
        key: One random stream per sample, on the host.
        images: Pixels in [0, 1].
        bits: Bits per channel of the files.
    """
    drawn = draw(uniform(key, NUMBERS), torch.zeros_like(key.low), _SOME, operations(images.shape[1], bits), _EVEN)
    apply(images, group(drawn, images.device), bits=bits, widest=_SOME.blur_sigma[1])
    return images
