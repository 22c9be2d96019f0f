"""What stands beside the options: their ranges, and what a value of theirs changes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from ssl_vit.configs import parse, to_dict
from ssl_vit.configs.cli import flat
from ssl_vit.configs.facts import LATER, NO_EFFECT, SAME_RUN, Effect, Range, check_ranges, options
from ssl_vit.core.errors import UserError
from ssl_vit.methods import METHODS, known_recipes
from ssl_vit.methods.dino import DINORecipe, ResolvedDINORecipe
from ssl_vit.methods.mae import MAERecipe, ResolvedMAERecipe
from ssl_vit.runs.identity import identity, with_meaning
from ssl_vit.verdict.options import verdict_recipe

ALL = (*known_recipes(), verdict_recipe())
SAME_RUN_WITH_ANOTHER = {
    "preset", "dry_run", "run.dir", "run.log_with", "model.weights",
    "data.workers", "data.cache", "data.cache_size", "data.facts", "data.on_leak", "data.transductive",
    "eval.data.on_leak", "eval.data.cache_size",
    "eval.batch_size", "eval.precision", "eval.compile", "eval.keep_features", "eval.baselines", "eval.metric",
    "fit.epochs", "fit.min_steps", "fit.micro_batch", "fit.recompute", "fit.channels_last", "fit.compile",
    "fit.profile", "fit.log_every", "fit.checkpoint_steps", "fit.checkpoint_minutes", "fit.keep_checkpoints",
    "fit.watch", "fit.watch_percent", "fit.shard", "fit.max_time", "fit.watchdog", "fit.on_divergence",
    "fit.most_skips", "fit.spike", "fit.products",
    "dino.export", "dino.on_collapse", "dino.collapse_patience", "dino.check_steps", "dino.loss_chunk",
    "verdict.budget", "verdict.jobs", "verdict.executor", "verdict.job", "verdict.plan_only",
}  # fmt: skip
"""The names of run directories, and which runs continue which, depend on this list: an option may join it when it is
new, and none may leave."""
SAME_PROTOCOL_WITH_ANOTHER = {
    "dry_run", "run.dir", "run.log_with", "model.weights", "data.cache", "data.cache_size", "data.workers",
    "data.facts", "eval.data.cache_size",
    "eval.batch_size", "eval.baselines", "eval.metric",
    "fit.micro_batch", "fit.statistics_batch", "fit.recompute", "fit.channels_last", "fit.compile", "fit.profile",
    "fit.log_every", "fit.checkpoint_steps", "fit.checkpoint_minutes", "fit.keep_checkpoints",
    "fit.watch", "fit.watch_percent", "fit.shard", "fit.max_time", "fit.watchdog", "fit.on_divergence",
    "fit.most_skips", "fit.spike", "fit.products",
}  # fmt: skip
"""Results that are there already stand in one table by this list."""
LEFT_OUT_WHILE_OPEN = {
    "continued.rate", "continued.length", "continued.heads_first", "continued.blocks", "continued.least_agreement",
    "continued.least_cka", "continued.look_percent", "data.max_pixels", "eval.data.max_pixels",
    "fit.gradient_hook", *(f"{name}.fit.gradient_hook" for name in METHODS),  # of a verdict
}  # fmt: skip
"""Options that came when there were runs without them: while they are open, names and protocols are as before."""


@dataclass(frozen=True)
class Group:
    """As given."""

    share: Annotated[float | None, Range(0, 1), SAME_RUN] = None
    """A share."""
    sizes: Annotated[tuple[int, ...], Range(1)] = (1, 2)
    """Sizes."""
    plain: int = 0
    """Anything."""


@dataclass(frozen=True)
class Filled(Group):
    """The same with what was left open filled."""

    share: float = 0.5


@dataclass(frozen=True)
class Recipe:
    """Options of a toy."""

    seed: Annotated[int, Range(0), NO_EFFECT] = 0
    """A seed."""
    toy: Group = field(default_factory=Group)


@dataclass(frozen=True)
class FilledRecipe(Recipe):
    """The toy with what was left open filled."""

    toy: Filled = field(default_factory=Filled)


def test_facts_by_dotted_name() -> None:
    found = options(Recipe)
    assert list(found) == ["seed", "toy.share", "toy.sizes", "toy.plain"]
    assert (found["seed"].range, found["seed"].effect) == (Range(0), NO_EFFECT)
    assert (found["toy.share"].range, found["toy.share"].effect) == (Range(0, 1), SAME_RUN)
    assert (found["toy.plain"].range, found["toy.plain"].effect) == (None, Effect(run=True, protocol=True))
    assert found["toy.share"].type == (float | None)


def test_a_narrower_type_keeps_the_facts_of_its_field() -> None:
    share = options(Filled)["share"]
    assert (share.type, share.range, share.effect) == (float, Range(0, 1), SAME_RUN)
    given, filled = options(Recipe), options(FilledRecipe)
    assert {name: (o.range, o.effect) for name, o in given.items()} == {
        name: (o.range, o.effect) for name, o in filled.items()
    }
    assert filled["toy.share"] == share


@dataclass(frozen=True)
class Newer:
    """A group that came later."""

    share: Annotated[float | None, LATER] = None
    """A share."""
    width: Annotated[int | None, LATER, NO_EFFECT] = None
    """A width."""


@dataclass(frozen=True)
class Grown(Recipe):
    """The toy with a newer group."""

    newer: Newer = field(default_factory=Newer)


def test_an_option_that_came_later_counts_once_it_is_given() -> None:
    assert identity(to_dict(Grown()), Grown) == identity(to_dict(Recipe()), Recipe)
    given = identity(to_dict(Grown(newer=Newer(share=0.5, width=3))), Grown)
    assert given == identity(to_dict(Recipe()), Recipe) | {"newer": {"share": 0.5}}


@dataclass(frozen=True)
class Study:
    """A recipe that has another's options as a group, and counts them all."""

    toy: Annotated[Recipe, Effect()] = field(default_factory=Recipe)
    plain: Recipe = field(default_factory=Recipe)


def test_an_effect_beside_a_group_is_that_of_all_its_options() -> None:
    found = options(Study)
    assert {found[name].effect for name in ("toy.seed", "toy.toy.share", "toy.toy.plain")} == {Effect()}
    assert (found["plain.seed"].effect, found["plain.toy.share"].effect) == (NO_EFFECT, SAME_RUN)
    assert found["toy.toy.share"].range == Range(0, 1)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (Recipe(seed=-1), "--seed -1 must be at least 0"),
        (Recipe(toy=Group(share=1.5)), "--toy.share 1.5 must be at least 0 and at most 1"),
        (Recipe(toy=Group(share=float("nan"))), "--toy.share nan must be at least 0 and at most 1"),
        (Recipe(toy=Filled(share=-0.5)), "--toy.share -0.5 must be at least 0 and at most 1"),
        (Recipe(toy=Group(sizes=(3, 0))), "--toy.sizes 0 must be at least 1"),
    ],
)
def test_numbers_outside_their_range_are_refused(config: Recipe, words: str) -> None:
    check_ranges(Recipe(toy=Group(share=1.0, plain=-5)))
    with pytest.raises(UserError, match=f"^{re.escape(words)}$"):
        check_ranges(config)


@pytest.mark.parametrize("recipe", ALL)
def test_every_option_has_its_facts(recipe: type[Any]) -> None:
    assert list(options(recipe)) == list(flat(to_dict(recipe())))


def counted_in_a_verdict(recipe: type[Any]) -> set[str]:
    """What makes another verdict, though not another run."""
    if recipe is not verdict_recipe():
        return set()
    return {"preset", "eval.metric"} | {name for name in SAME_RUN_WITH_ANOTHER if name.partition(".")[0] in METHODS}


@pytest.mark.parametrize("recipe", ALL)
def test_what_makes_runs_the_same_and_what_gives_numbers_their_meaning(recipe: type[Any]) -> None:
    found = options(recipe)
    of_a_verdict = counted_in_a_verdict(recipe)
    same_run = {name for name, option in found.items() if not option.effect.run}
    assert same_run == SAME_RUN_WITH_ANOTHER & set(found) - of_a_verdict
    same_protocol = {name for name, option in found.items() if not option.effect.protocol}
    assert same_protocol == SAME_PROTOCOL_WITH_ANOTHER & set(found) - of_a_verdict


def test_no_name_of_the_lists_is_left_without_an_option() -> None:
    known = {name: option for recipe in ALL for name, option in options(recipe).items()}
    assert known.keys() >= SAME_RUN_WITH_ANOTHER | SAME_PROTOCOL_WITH_ANOTHER
    assert {name for name, option in known.items() if option.later} == LEFT_OUT_WHILE_OPEN


@pytest.mark.parametrize("recipe", ALL)
def test_dictionaries_lose_exactly_these(recipe: type[Any]) -> None:
    config = to_dict(recipe())
    of_a_verdict = counted_in_a_verdict(recipe)
    there = set(flat(config)) - LEFT_OUT_WHILE_OPEN
    assert set(flat(identity(config, recipe))) == there - (SAME_RUN_WITH_ANOTHER - of_a_verdict)
    if recipe in known_recipes():
        assert set(flat(with_meaning(config))) == there - SAME_PROTOCOL_WITH_ANOTHER
    whole = {name.partition(".")[0] for name in LEFT_OUT_WHILE_OPEN} - {name.partition(".")[0] for name in there}
    assert not whole & identity(config, recipe).keys()
    assert config == to_dict(recipe())  # not in place


def test_every_option_of_a_method_counts_in_a_verdict() -> None:
    found = options(verdict_recipe())
    for name in METHODS:
        assert {option.effect for key, option in found.items() if key.startswith(f"{name}.")} == {Effect()}


@pytest.mark.parametrize(("given", "resolved"), [(MAERecipe, ResolvedMAERecipe), (DINORecipe, ResolvedDINORecipe)])
def test_resolved_recipes_have_the_facts_of_those_as_given(given: type[Any], resolved: type[Any]) -> None:
    facts = ({name: (o.range, o.effect) for name, o in options(recipe).items()} for recipe in (given, resolved))
    assert next(facts) == next(facts)


def test_dictionaries_of_no_recipe_lose_what_any_recipe_would() -> None:
    parts = {"data": {"path": "x", "cache": "ram"}, "fit": {"epochs": 5, "log_every": 1}, "somebody": {"else": 3}}
    assert identity(parts, MAERecipe) == {"data": {"path": "x"}, "fit": {}, "somebody": {"else": 3}}
    assert with_meaning(parts) == {"data": {"path": "x"}, "fit": {"epochs": 5}, "somebody": {"else": 3}}


def test_help_says_the_range(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(MAERecipe, "", ["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "--seed SEED Seed of every random number of the run. At least 0 and at most 4294967295. (type:" in said
    assert "--fit.clip_grad CLIP_GRAD Largest global gradient norm; default: no clipping. Positive. (type:" in said
