"""What training will take: counted before anything is measured, said from the first steps, an hour at most on a CPU.

On a CPU a run that nobody gave a length should end within the hour. What it costs is counted, not measured: floating-
point operations of one tried pass, and a fixed number of them for every pixel that a view makes. A core is taken to do
``RATE`` of them a second, which is less than half of what current cores do. So the same images and options give the
same choice on every machine with as many cores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from ssl_vit.configs import PretrainingRecipe, ResolvedPretraining, networks, presets
from ssl_vit.configs.networks import NETWORKS
from ssl_vit.core.machine import usable_cores
from ssl_vit.core.text import duration
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.scale import PixelScale
from ssl_vit.methods import Facts, Method
from ssl_vit.methods.method import imported
from ssl_vit.models.build import build_backbone, check_shape, facts_of
from ssl_vit.objectives.base import Built
from ssl_vit.released.starts import network_of_weights, started_backbone
from ssl_vit.training.metering import try_pass, with_every_branch

HOUR = 3600.0
RATE = 20e9
"""Operations a second that a core is taken to do; whole steps of ViTs were measured at 37 to 47e9."""
_MOST_CORES = 16
"""More cores are of little use to networks that a CPU trains in an hour."""
_PER_NUMBER = 400.0
"""Operations that cutting and resizing one number of a view takes the time of: 20 ns at ``RATE``."""
_LEAST_SHARE = 0.1
"""Of the preset's images; a network that gets fewer in an hour is too large."""
_TRIED = 2


class Cost(NamedTuple):
    """What one image takes in training."""

    flops: float
    """Operations of products, forwards and backwards."""
    numbers: float
    """Channels x pixels in all views of it."""
    kept: float = 0.0
    """Bytes that the forward pass keeps for the backward pass."""
    weights: float = 0.0
    """Bytes of weights, gradients and AdamW's two moments, whatever the number of images."""

    @property
    def operations(self) -> float:
        """All of it as operations."""
        return self.flops + _PER_NUMBER * self.numbers


def cores() -> int:
    """Cores that the rule counts."""
    return min(_MOST_CORES, usable_cores())


def network_of(
    method: Method, asked: PretrainingRecipe, images: int, side: int, *, cpu: bool
) -> tuple[Facts, presets.Preset]:
    """The network for some images, and the preset that fills what is left open.

    Args:
        method: What it is trained by.
        asked: As given.
        images: How many.
        side: Median short side of the images, or of a window, in pixels.
        cpu: Whether it is trained on a CPU.
    """
    if asked.model.weights is not None:
        shape, model = network_of_weights(asked.model, method.needs)
        return Facts(images, model, shape, started=True), presets.preset_for(asked.preset, model.img_size, cpu=cpu)
    own = own_network(method, asked, side, cpu=cpu)
    given = asked.model if own is None else replace(asked.model, name=own)
    shape = facts_of(given, side, asked.preset, needs=method.needs)
    model = networks.resolve_model(given, side, shape, asked.preset, method.positions)
    check_shape(model)
    return Facts(images, model, shape), presets.preset_for(asked.preset, model.img_size, cpu=cpu)


def own_network(method: Method, asked: PretrainingRecipe, side: int, *, cpu: bool) -> str | None:
    """The network that a method has in a preset's place, where the options leave the network open; None for none.

    Args:
        method: What it is trained by.
        asked: As given.
        side: Median short side of the images, or of a window, in pixels.
        cpu: Whether it is trained on a CPU.
    """
    if _names_network(asked) or asked.model.patch_size is not None:
        return None
    preset = presets.preset_for(asked.preset, asked.model.img_size or side, cpu=cpu)
    return dict(method.networks).get(preset.name)


def _names_network(asked: PretrainingRecipe) -> bool:
    sizes = ("name", "width", "depth", "heads", "args", "weights")
    return any(getattr(asked.model, name) is not None for name in sizes)


def stand_ins(images: int, form: Format, size: int) -> Batch:
    """Grey images of the network's size, where nothing but their number and kind counts.

    Args:
        images: How many.
        form: Channels and bits.
        size: Side in pixels.
    """
    dtype = torch.uint8 if form.bits == 8 else torch.int32
    index = torch.arange(images)
    return Batch(
        torch.full((images, form.channels, size, size), 2 ** (form.bits - 1), dtype=dtype), index,
        torch.zeros_like(index), torch.full((images, 2), float(size)), native=True, labels=None,
    )  # fmt: skip


def build_for(method: Method, cfg: ResolvedPretraining, form: Format) -> Built:
    """Objective and view of a run on images that nobody has measured; torch's generator stays where it was.

    Args:
        method: What it is trained by.
        cfg: Resolved.
        form: Channels and bits of the images.
    """
    scale = PixelScale((0.5,) * form.channels, (0.25,) * form.channels, form.bits)
    with torch.random.fork_rng(devices=[]):
        build = started_backbone if cfg.model.weights else build_backbone
        return imported(method.build)(cfg, build(cfg.model, form.channels), scale, torch.float32)


def numbers_of(inputs: dict[str, torch.Tensor]) -> float:
    """Channels x pixels in all views of one image, of what an objective reads."""
    views = [value for value in inputs.values() if value.is_floating_point() and value.ndim >= 4]
    return float(sum(value[0].numel() for value in views if value.shape[-1] == value.shape[-2]))


def count(method: Method, cfg: ResolvedPretraining, form: Format) -> Cost:
    """Counts what an image takes, by one pass of two images; plain attention, so that every version counts alike.

    Args:
        method: What it is trained by.
        cfg: Resolved.
        form: Channels and bits of the images.
    """
    built = build_for(method, cfg, form)
    inputs = with_every_branch(built.view(stand_ins(_TRIED, form, cfg.model.img_size), 0))
    with sdpa_kernel(SDPBackend.MATH):
        tried = try_pass(built.objective, inputs, torch.autocast("cpu", enabled=False))
    weights = sum(p.numel() * p.element_size() * (4 if p.requires_grad else 1) for p in built.objective.parameters())
    return Cost(tried.flops / _TRIED, numbers_of(inputs), tried.kept / _TRIED, weights)


class Fitted(NamedTuple):
    """What a CPU is asked to train."""

    asked: PretrainingRecipe
    """With network and length filled in where the preset's take longer than an hour."""
    note: str
    """What was chosen and why; empty where nothing was."""


def within_an_hour(method: Method, asked: PretrainingRecipe, images: int, side: int, form: Format) -> Fitted:
    """Shrinks the preset's network and length to an hour of this CPU, where nobody named them.

    Nothing changes where the preset as it is fits, or where ``--preset`` was named. Otherwise the network is the
    largest of the preset's and narrower ones that sees a tenth of the preset's images in an hour, and the length what
    an hour allows, rounded down to two digits. The network does not depend on a length that was given: so a run may be
    extended.

    Args:
        method: What it is trained by.
        asked: As given.
        images: How many.
        side: Median short side of the images, or of a window, in pixels.
        form: Channels and bits of the images.
    """
    named = _names_network(asked)
    long = asked.fit.epochs is not None or asked.fit.min_steps is not None
    if asked.preset is not None or (named and long):
        return Fitted(asked, "")
    whole = replace(asked, fit=replace(asked.fit, epochs=None, min_steps=None))

    def hours(name: str | None) -> tuple[float, float]:
        """Hours and epochs of the preset's whole length with a network."""
        model = replace(asked.model, name=name)
        facts, preset = network_of(method, replace(whole, model=model), images, side, cpu=True)
        cfg: ResolvedPretraining = method.resolve(whole, facts, preset)
        return cfg.fit.epochs * images * count(method, cfg, form).operations / (RATE * cores() * HOUR), cfg.fit.epochs

    usual, epochs = hours(asked.model.name)
    if usual <= 1:
        return Fitted(asked, "")
    preset = network_of(method, whole, images, side, cpu=True)[1]
    name, takes, own = asked.model.name, usual, own_network(method, asked, side, cpu=True)
    for smaller in () if named or own else narrower(preset.network):
        if takes * _LEAST_SHARE <= 1:
            break
        name, (takes, _) = smaller, hours(smaller)
    kept = asked.fit.epochs if long or takes <= 1 else rounded_down(epochs / takes)
    if name == asked.model.name and kept == asked.fit.epochs:
        return Fitted(asked, "")
    fitted = replace(asked, model=replace(asked.model, name=name), fit=replace(asked.fit, epochs=kept))
    network = "the named network" if named else own or preset.network
    some = f"{cores()} idle core{'s' * (cores() > 1)}"
    what = [] if name == asked.model.name else [name or ""]
    what += [] if long else [f"{epochs if kept is None else kept:g} epochs"]
    return Fitted(
        fitted,
        f"chosen          {' and '.join(what)}, an hour at most on {some} by counting; {network} for "
        f"{epochs:g} epochs would take about {duration(usual * HOUR)} "
        f"({f'--fit.epochs {epochs:g}' if named else f'--preset {preset.name}'})",
    )


def narrower(network: str) -> list[str]:
    """Short names of the Vision Transformers below one, the widest first.

    Args:
        network: A short name.
    """
    names = list(NETWORKS)
    return names[: names.index(network)][::-1]


def rounded_down(number: float) -> float:
    """A number with two digits, never a larger one."""
    step = 10.0 ** (math.floor(math.log10(number)) - 1)
    return float(f"{math.floor(number / step * (1 + 1e-12)) * step:.6g}")


def lighter_networks(
    method: Method, cfg: ResolvedPretraining, asked: PretrainingRecipe, images: int, side: int, form: Format
) -> dict[str, float]:
    """Narrower networks of the same input, by what each takes of the time.

    Args:
        method: What is trained.
        cfg: Resolved.
        asked: The same as given.
        images: How many.
        side: Median short side of the images, or of a window, in pixels.
        form: Channels and bits of the images.
    """
    if cfg.model.weights:  # they are of one network
        return {}
    model, own = cfg.model, count(method, cfg, form).operations
    below = [network.name for network in NETWORKS.values() if model.width and network.width < model.width]
    found: dict[str, float] = {}
    for name in below[::-1]:
        open_sizes = replace(method.recipe().model, name=name, img_size=model.img_size, patch_size=model.patch_size)
        other = replace(asked, model=open_sizes, preset=cfg.preset)
        facts, preset = network_of(method, other, images, side, cpu=False)  # named
        smaller: ResolvedPretraining = method.resolve(other, facts, preset)
        found[name] = count(method, smaller, form).operations / own
    return found


def none_lighter() -> dict[str, float]:
    """Where the network is given."""
    return {}


@dataclass(frozen=True)
class Forecast:
    """What is said once the first steps were timed."""

    device: str
    """Its kind, as torch has it."""
    epochs: float | None
    """Of the run; None where its length is a number of steps."""
    lighter: Callable[[], dict[str, float]] = none_lighter
    """Other networks by what each takes of the time; asked where a run takes longer than an hour."""

    def words(self, seconds: float, *, begun: bool = False) -> str:
        """Such as "about 14 h on this CPU; --model.name vit_micro: 50 min; --fit.epochs 50: 55 min".

        Args:
            seconds: Of the whole run, as the first steps have it, or of what is left.
            begun: Whether the run goes on. Then no other options are named: they would be another run.
        """
        place = "this CPU" if self.device == "cpu" else "this GPU"
        said = [f"about {duration(seconds)}{' more' * begun} on {place}"]
        if seconds > HOUR and not begun:
            others = self.lighter()
            fast = [name for name, share in others.items() if share * seconds <= HOUR] or list(others)[-1:]
            said += [f"--model.name {name}: {duration(others[name] * seconds)}" for name in fast[:1]]
            if self.epochs is not None:
                fewer = rounded_down(self.epochs * HOUR / seconds)
                said.append(f"--fit.epochs {fewer:g}: {duration(seconds * fewer / self.epochs)}")
        return "; ".join(said)
