"""What a method is to the rest of the house: one entry, read by recipes, verdict, report, help, docs and tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, NamedTuple

from ssl_vit.configs.model import ResolvedModel
from ssl_vit.configs.networks import ModelFacts, Needs
from ssl_vit.configs.presets import Preset
from ssl_vit.configs.recipes import PretrainingRecipe
from ssl_vit.core.notices import say_once


class Facts(NamedTuple):
    """What open options are resolved by, beside the preset."""

    images: int
    """Number of training images."""
    model: ResolvedModel
    shape: ModelFacts
    """Default sizes of the network, and whether it is a plain ViT."""
    kind: str = "class"
    """What labels are, where there are any (``data.targets.Kind``)."""

    @property
    def width(self) -> int:
        """D of the network."""
        return self.model.width or self.shape.width

    @property
    def patch(self) -> int:
        """Side of a patch, or of what a place of the last feature map stands for, in pixels."""
        return self.model.patch_size or self.shape.patch_size

    def drop_path(self, rate: float, option: str) -> float:
        """The rate of stochastic depth that the network is trained with: 0 where it has none, which is said.

        Args:
            rate: As given, or the preset's.
            option: What it is called.
        """
        if rate and not self.shape.drop_path:
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
    """``module:function`` that makes objective and view (``objectives.base.Built``); imported when it runs."""
    picture: str = ""
    """``module:function`` that draws what it has learnt; empty where there is nothing to draw."""
    positions: Literal["sincos", "learnable"] = "sincos"
    """Position embedding of a plain ViT, where the options leave it open."""
    look: Look | None = None
    """None: one of those that are left over."""
    unasked: bool = False
    """Whether a verdict has it take part without being told to."""

    @property
    def script(self) -> str:
        """Its recipe's place in a clone of the project."""
        return f"recipes/{self.name}.py"

    def builder(self) -> Callable[..., Any]:
        """The function that ``build`` names."""
        return imported(self.build)


def imported(place: str) -> Callable[..., Any]:
    """What ``module:name`` names.

    Args:
        place: Such as ``ssl_vit.objectives.mae:build``.
    """
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
