"""All questions, in one table: options, plan, course, page, documentation and tests read it."""

from __future__ import annotations

from collections.abc import Mapping

from ssl_vit.questions.asked import data, inductive_bias, learned, positions, scale, translation
from ssl_vit.questions.question import Question
from ssl_vit.questions.scope import Look, Pretraining, Scope, Training

QUESTIONS: Mapping[str, Question] = {
    one.name: one
    for one in (
        data.QUESTION, inductive_bias.QUESTION, translation.QUESTION, positions.QUESTION, learned.QUESTION,
        scale.QUESTION,
    )
}  # fmt: skip
"""By name, in the order of the page."""


def trainings(scope: Scope) -> list[Training]:
    """Every training on labels that any question of a scope stands on, once.

    Args:
        scope: How much is done.
    """
    wanted = [training for name in scope.questions for training in QUESTIONS[name].trainings(scope)]
    looked = [look.of for look in looks(scope)]
    return [one for one in dict.fromkeys([*wanted, *looked]) if one.labels]


def looks(scope: Scope) -> list[Look]:
    """Everything that is read off networks, once.

    Args:
        scope: How much is done.
    """
    return list(dict.fromkeys(look for name in scope.questions for look in QUESTIONS[name].looks(scope)))


def pretrainings(scope: Scope) -> list[Pretraining]:
    """Every pre-training run that trainings and looks begin with, once.

    Args:
        scope: How much is done.
    """
    begun = [one.pretraining for one in (*trainings(scope), *(look.of for look in looks(scope)))]
    return list(dict.fromkeys(one for one in begun if one is not None))
