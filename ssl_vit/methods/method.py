"""What a method is to the rest of the house: one entry, read by recipes, verdict, report, help, docs and tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeVar

from ssl_vit.configs.continued import ResolvedContinued, lowered_downwards, resolve_continued
from ssl_vit.configs.fit import ResolvedFit, ResolvedOptim
from ssl_vit.configs.model import ResolvedModel
from ssl_vit.configs.networks import ModelFacts, Needs
from ssl_vit.configs.presets import Preset
from ssl_vit.configs.recipes import PretrainingRecipe, ResolvedPretraining
from ssl_vit.configs.resolve import batch_for
from ssl_vit.configs.settled import fill, settle
from ssl_vit.core.notices import say_once
from ssl_vit.core.text import aligned, note, short


class Facts(NamedTuple):
    """What open options are resolved by, beside the preset."""

    images: int
    """Number of training images."""
    model: ResolvedModel
    network: ModelFacts
    """Default sizes of the network, and whether it is a plain ViT."""
    kind: str = "class"
    """What labels are, where there are any (``data.targets.Kind``)."""
    started: bool = False
    """Whether pre-training begins with a network's weights."""

    @property
    def width(self) -> int:
        """D of the network."""
        return self.model.width or self.network.width

    @property
    def patch(self) -> int:
        """Side of a patch, or of what a place of the last feature map stands for, in pixels."""
        return self.model.patch_size or self.network.patch_size

    def drop_path(self, rate: float, option: str) -> float:
        """The rate of stochastic depth that the network is trained with: 0 where it has none, which is said."""
        if rate and not self.network.drop_path:
            say_once(f"note: timm's model has no place for stochastic depth ({option}): it is trained without")
            return 0.0
        return rate


class Look(NamedTuple):
    """How something is drawn everywhere, on the page and in print."""

    light: str
    """Colour on a light ground, as #rrggbb."""
    dark: str
    marker: str
    """matplotlib's name of it."""
    dash: tuple[float, ...] = ()
    """Lengths of strokes and gaps; empty for a full line."""


@dataclass(frozen=True)
class Method:
    """A way to pre-train without labels."""

    name: str
    """Its group of options, the name of its recipe, of run directories and of results: ``mae``."""
    title: str
    """In tables and sentences: ``MAE``."""
    paper: str
    """Who proposed it, for help and docs."""
    recipe: type[PretrainingRecipe]
    """Its options as given."""
    needs: Needs
    """What it asks of a network: one vector of an image, tokens, or tokens of some patches only."""
    resolve: Callable[[Any, Facts, Preset], Any]
    """(recipe as given, facts, preset) -> the recipe without open values."""
    presets: Callable[[], str]
    """Its part of all presets as text, for ``--preset``."""
    build: str
    """``module:function`` of (recipe without open values, backbone, pixel statistics, dtype of the images) that makes
    objective and view (``objectives.base.Built``); imported when it runs."""
    picture: str = ""
    """``module:function`` that draws what it has learnt; empty where there is nothing to draw."""
    networks: tuple[tuple[str, str], ...] = ()
    """Presets with the network that is trained in the place of theirs, where none is named."""
    positions: Literal["sincos", "learnable"] = "sincos"
    """Position embedding of a plain ViT, where the options leave it open."""
    look: Look | None = None
    """None: one of those that are left over."""
    unasked: bool = False
    """Whether a verdict has it take part without being told to."""
    unasked_elsewhere: bool = False
    """The same on networks that are no plain ViTs, and from public weights."""

    @property
    def script(self) -> str:
        """Its recipe's place in a clone of the project."""
        return f"recipes/{self.name}.py"


def imported(place: str) -> Callable[..., Any]:
    """What ``module:name`` names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


@dataclass(frozen=True, kw_only=True)
class MethodPreset:
    """A method's part of a preset; the defaults are for photographs."""

    source: str
    expected: str = "Not measured here."
    """Result to expect, or that nobody measured it."""
    images: int = 4_000_000
    """Budget: images seen, epochs x images."""
    epochs: tuple[int, int] = (20, 800)
    """Fewest and most epochs that the budget may come to."""
    batch: int = 256
    """Effective batch, where there are images enough for four steps an epoch."""
    base_lr: float = 1e-3
    """Per 256 images of effective batch."""
    crop: tuple[float, float] = (1.0, 1.0)
    """Area of the crop as a share of the image, of methods that see one of it; (1, 1): no crop."""


R = TypeVar("R", bound=ResolvedPretraining)
P = TypeVar("P", bound=MethodPreset)


def settle_recipe(
    kind: type[R], cfg: PretrainingRecipe, facts: Facts, preset: Preset, own: MethodPreset, **groups: Any
) -> R:
    """A recipe without open values: network, rate, length and batch by the rule of every method, ``groups`` its own."""
    epochs = float(min(own.epochs[1], max(own.epochs[0], round(own.images / facts.images))))
    batch = batch_for(facts.images, own.batch)
    optim = fill(ResolvedOptim, cfg.optim, base_lr=own.base_lr)
    continued = resolve_continued(cfg.continued, facts.started)
    if isinstance(continued, ResolvedContinued):
        epochs, optim = max(1.0, continued.length * epochs), lowered_downwards(optim)
    return settle(
        kind,
        cfg,
        preset=preset.name,
        model=facts.model,
        optim=optim,
        continued=continued,
        fit=fill(ResolvedFit, cfg.fit, epochs=epochs, batch_size=batch, min_steps=0),
        **groups,
    )


Columns = dict[str, Callable[[P], str]]
"""Cells of a table by their heading."""
BUDGET: Columns[MethodPreset] = {
    "images": lambda p: f"{p.images / 1e6:g} M",
    "epochs": lambda p: f"{p.epochs[0]}-{p.epochs[1]}",
    "batch": lambda p: f"{p.batch}",
    "lr": lambda p: short(p.base_lr),
}
CROP: Columns[MethodPreset] = {"crop": lambda p: "none" if p.crop == (1.0, 1.0) else f"{p.crop[0]:g}-{p.crop[1]:g}"}


def listing(title: str, presets: Mapping[str, P], columns: Columns[P], beside: str = "") -> str:
    """A method's part of all presets as text of at most 120 columns, with sources and results to expect."""
    rows = [(name, *(cell(preset) for cell in columns.values())) for name, preset in presets.items()]
    notes = [note(n, f"Source: {p.source}") + "\n" + note("", f"Expected: {p.expected}") for n, p in presets.items()]
    return "\n".join([f"{title}:\n", aligned([("preset", *columns), *rows]), beside, *notes])
