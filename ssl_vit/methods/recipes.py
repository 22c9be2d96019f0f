"""Every recipe that options of runs and evaluations come from."""

from __future__ import annotations

from typing import Any

from ssl_vit.configs import FiguresRecipe, KNNRecipe, LinearRecipe, PredictRecipe
from ssl_vit.methods import METHODS
from ssl_vit.methods.supervised import FinetuneRecipe, SupervisedRecipe


def known_recipes() -> tuple[type[Any], ...]:
    """The recipes of all scripts but the verdict's, which is of these (``verdict.options``)."""
    methods = (method.recipe for method in METHODS.values())
    return (*methods, SupervisedRecipe, FinetuneRecipe, KNNRecipe, LinearRecipe, PredictRecipe, FiguresRecipe)
