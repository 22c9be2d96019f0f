"""Options of the questions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from ssl_vit.configs import JudgedMetricConfig, PoolConfig, RunConfig
from ssl_vit.configs.facts import SAME_RUN, Range
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.verdict.options import seconds_of

NAMES = ("data", "bias", "translation", "positions", "learned", "scale")
"""Of the questions, in the order of the page."""
BUDGET = "12m"
"""On a CPU, where none is given."""


@dataclass(frozen=True)
class QuestionsConfig:
    """Which questions are answered, with what networks, and how long it may take."""

    budget: Annotated[str | None, SAME_RUN] = None
    """Time the whole may take, such as 90s, 10m, 2h or 1.5d: lengths of training, numbers of labels and sizes of
    networks are chosen by it, from measured steps. Default: 12m on a CPU, no limit on a GPU."""
    only: Annotated[str | None, SAME_RUN] = None
    """Questions to answer, joined by commas: data (does a ViT need more data?), bias (why?), translation, positions,
    learned (what do self-supervised ViTs learn?), scale (does bigger keep improving?). Default: all that fit."""
    size: Literal["micro", "mini"] = "micro"
    """Size of all networks: micro (0.2 million parameters, for a CPU) or mini (1.2 million)."""
    draws: Annotated[int, Range(2)] = 3
    """Draws of labels, each with seeds of its own for training and pre-training; with fewer than 3 intervals are very
    wide."""
    labels: Annotated[tuple[int, ...] | None, Range(1)] = None
    """Numbers of labels to judge at; all labels are always among them. Default: 2, 10, 30, 100, 500 and 2,000
    for each class, as many of these as fit and there are twice as many labels for."""
    length: Annotated[float, Range(1e-6)] = 1.0
    """Length of all training, as a factor of the most that time may allow: 100 epochs of all labels and at least 1,000
    steps on labels, and the preset's length of pre-training."""
    doublings: Annotated[int, Range(1, 4)] = 4
    """How often width and depth are doubled, from an eighth of the usual width and from one block on, at most."""
    jobs: Annotated[int | None, Range(0), SAME_RUN] = None
    """Trainings at the same time on a CPU, each in a process with one thread; 0 trains one after the other in this one,
    as a GPU does. Default: one per core."""
    plan_only: Annotated[bool, SAME_RUN] = False
    """Measure a few steps, print the plan, and stop."""


@dataclass(frozen=True)
class Questions:
    """Options of eval/questions.py."""

    BARE: ClassVar[tuple[str, ...]] = ("data.path", "eval.data.path")
    seed: Annotated[int, Range(0, 2**31)] = 0
    """Seed of the first draw's trainings; the others follow. Draws of labels are counted from 0 for every seed."""
    run: RunConfig = field(default_factory=RunConfig)
    data: PoolConfig = field(default_factory=PoolConfig)
    eval: JudgedMetricConfig = field(default_factory=JudgedMetricConfig)
    questions: QuestionsConfig = field(default_factory=QuestionsConfig)


def asked_for(cfg: QuestionsConfig) -> tuple[str, ...]:
    """Names of the questions to answer, in the order of the page.

    Args:
        cfg: As given.

    Raises:
        UserError: For a name that is none.
    """
    if cfg.only is None:
        return NAMES
    words = [word.strip() for word in cfg.only.split(",") if word.strip()]
    for word in words or [cfg.only]:
        if word not in NAMES:
            raise UserError(f"--questions.only {word} is none of {', '.join(NAMES)}{did_you_mean(word, NAMES)}")
    return tuple(name for name in NAMES if name in words)


def check_questions(recipe: Questions) -> None:
    """Refuses what no images can make right, before anything is imported or opened.

    Args:
        recipe: As given.

    Raises:
        UserError: Naming the option.
    """
    asked_for(recipe.questions)
    if recipe.questions.budget is not None:
        seconds_of(recipe.questions.budget, "--questions.budget")
    if recipe.run.log_with is not None:
        raise UserError("--run.log_with: the questions train many runs and track none; give it to single runs")
    if recipe.data.window is not None:
        raise UserError("--data.window: the questions permute and shift whole images; leave it out")
    if recipe.data.stream:
        raise UserError("--data.stream: the questions draw labels from all images; leave it out")
