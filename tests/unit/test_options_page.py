"""docs/options.md: every option as it is declared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
from ssl_vit.configs.facts import NO_EFFECT, Range, options
from ssl_vit.methods import known_recipes
from ssl_vit.questions.options import Questions
from ssl_vit.verdict.options import verdict_recipe

from made_pages import script_of

make_options = script_of("make_options")


@dataclass(frozen=True)
class Group:
    """A toy's
    options.

    More on them.
    """

    share: Annotated[float | None, Range(0, 1)] = None
    """A share |of| <all>."""
    sizes: Annotated[tuple[int, ...], Range(1), NO_EFFECT] = (1, 2)
    """Sizes, over
    two lines; see ``share``."""


@dataclass(frozen=True)
class More(Group):
    """A larger toy's options."""

    way: Literal["a", "b"] | None = "a"
    """Which way."""


@dataclass(frozen=True)
class OneRecipe:
    """Options of recipes/one.py."""

    seed: int = 0
    """A seed."""
    toy: Group = field(default_factory=Group)


@dataclass(frozen=True)
class OtherRecipe:
    """Options of eval/the_other.py, which is no one.py."""

    seed: int = 3
    """A seed."""
    toy: More = field(default_factory=lambda: More(share=0.5))


@dataclass(frozen=True)
class BothRecipe:
    """Options of eval/both.py, which runs one.py."""

    toy: Group = field(default_factory=Group)
    one: OneRecipe = field(default_factory=OneRecipe)


def test_the_page_of_two_toys() -> None:
    said = make_options.page([OneRecipe, OtherRecipe])
    assert (
        said.removeprefix(make_options.HEAD)
        == """
| command | groups of options |
| --- | --- |
| `one` | [toy](#toy) |
| `the-other` | [toy](#toy) |

## Without a group

Taken by one, the-other.

| option | value | default | |
| --- | --- | --- | --- |
| `--seed` | whole number | `0` (one); `3` (the-other) | A seed. |

## toy

A toy's options. Taken by one, the-other.

| option | value | default | |
| --- | --- | --- | --- |
| `--toy.share` | number, 0 to 1 | open (one); `0.5` (the-other) | A share \\|of\\| \\<all>. |
| `--toy.sizes` * | whole numbers, at least 1 | `[1, 2]` | Sizes, over two lines; see `share`. |
| `--toy.way` | `a` or `b` | `a` | Which way. (the-other) |
"""
    )


def test_options_of_another_command_are_told_there() -> None:
    said = make_options.page([OneRecipe, BothRecipe])
    assert "--one." not in said.removeprefix(make_options.HEAD)
    assert said.count("--toy.share") == 1
    assert "| `both` | [toy](#toy) |" in said


@pytest.mark.parametrize("recipe", [*known_recipes(), verdict_recipe(), Questions])
def test_every_option_says_what_it_is(recipe: type) -> None:
    found = make_options.entries(recipe)
    assert [entry.name for entry in found] == list(options(recipe))
    assert [entry.name for entry in found if not entry.text.endswith(".") and not entry.text.endswith(")")] == []


def test_the_page_in_the_repository_is_of_these_options() -> None:
    written = make_options.PAGE.read_text(encoding="utf-8")
    assert written == make_options.page((*known_recipes(), verdict_recipe(), Questions)), "python docs/make_options.py"
