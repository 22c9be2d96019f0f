"""Options of pre-training that are given inside one of the verdict's: --verdict.mae and --verdict.dino."""

from __future__ import annotations

import shlex

from ssl_vit.configs.cli import read_words
from ssl_vit.configs.recipes import DINORecipe, MAERecipe
from ssl_vit.configs.verdict import VerdictConfig
from ssl_vit.core.errors import UserError

_RECIPES = {"mae": MAERecipe, "dino": DINORecipe}
_WHOLE = ("run", "data", "model", "eval", "seed", "preset")
"""Options that are the same for all methods of a verdict."""
_ALONE = ("config", "help", "print_config", "h")


def further_options(cfg: VerdictConfig, start: str) -> MAERecipe | DINORecipe:
    """The recipe of pre-training with the further options, and defaults in the place of all others.

    Args:
        cfg: Options of the verdict.
        start: mae or dino.

    Raises:
        UserError: For an option or a value that the recipe does not take, or that belongs to the verdict as a whole.
    """
    option, recipe = f"--verdict.{start}", _RECIPES[start]
    given: str = getattr(cfg, start)
    if not given:
        return recipe()
    try:
        words = shlex.split(given)
    except ValueError as error:
        raise UserError(f"{option} {given}: {str(error).lower()}; close every quote") from error
    for word in words:
        name = word.lstrip("-").partition("=")[0]
        group = name.partition(".")[0]
        if word.startswith("-") and group in _WHOLE:
            raise UserError(f"{option} {given}: --{name} is the same for all methods; give it to the verdict itself")
        if word.startswith("-") and name in _ALONE:
            raise UserError(f"{option} {given}: --{name} cannot stand here; write options of recipes/{start}.py")
    try:
        config = read_words(recipe, words)
    except UserError as error:
        raise UserError(f"{option} {given}: {error}") from error
    if config.fit.min_steps is not None:
        raise UserError(f"{option} {given}: give the length of pre-training as --fit.epochs, not --fit.min_steps")
    return config


def check_further(cfg: VerdictConfig) -> None:
    """Refuses what the recipes would refuse later.

    Raises:
        UserError: As ``further_options``.
    """
    for start in _RECIPES:
        further_options(cfg, start)
