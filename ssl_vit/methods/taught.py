"""Training on labels with a teacher, a classifier of the same classes: options and what open options become."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from ssl_vit.configs.facts import Range
from ssl_vit.configs.presets import Preset
from ssl_vit.configs.settled import OPEN, settle
from ssl_vit.core.errors import UserError
from ssl_vit.methods.method import Facts
from ssl_vit.methods.supervised import ResolvedSupervisedRecipe, SupervisedRecipe, labelled_groups


@dataclass(frozen=True)
class TaughtConfig:
    """What a trained classifier, the teacher, adds to the labels.

    The loss is (1 - weight) x that on labels + weight x the distance to the teacher (DeiT, Touvron et al. 2021) +
    token_weight x that of every place (token labelling, Jiang et al. 2021).
    """

    teacher: str = ""
    """The run of training on labels of the same classes (recipes/supervised.py, recipes/taught.py, eval/finetune.py)
    whose classifier teaches. Also written --teacher. It stays as it is, and reads the same mixed and varied images at
    its own input size, with its own pixel statistics."""
    distillation: Literal["hard", "soft"] = "hard"
    """What is learnt: the class that the teacher gives most to (hard, DeiT's better one), or its probabilities (soft).
    A network with a distillation token (deit_micro) learns it with that token and a head of its own, and averages both
    heads when it is judged; any other learns it with its only head."""
    weight: Annotated[float, Range(0, 1)] = 0.5
    """Share of the teacher in the loss of the whole image, in [0, 1]; DeiT's 0.5. 0 leaves token labelling alone."""
    temperature: Annotated[float, Range(0.01, 100)] = 1.0
    """What soft distillation divides both networks' outputs by; DeiT's code has 1, its paper 3."""
    token_weight: Annotated[float, Range(0)] = 0.0
    """Weight of token labelling: every place of the network's map learns the probabilities that the teacher's head
    gives to that place of its own map. 0 is off; LV-ViT has 0.5."""


@dataclass(frozen=True)
class TaughtRecipe(SupervisedRecipe):
    """Options of recipes/taught.py: those of training on labels, and the teacher."""

    BARE: ClassVar[tuple[str, ...]] = ("taught.teacher", "data.path")
    taught: TaughtConfig = field(default_factory=TaughtConfig)


@dataclass(frozen=True)
class ResolvedTaughtRecipe(ResolvedSupervisedRecipe, TaughtRecipe):
    """The same without open values."""

    taught: TaughtConfig = OPEN


def resolve(cfg: TaughtRecipe, facts: Facts, preset: Preset) -> ResolvedTaughtRecipe:
    """As training from scratch; UserError where nothing of the teacher is learnt, or a head has a hidden layer."""
    if cfg.taught.weight == cfg.taught.token_weight == 0:
        raise UserError("--taught.weight and --taught.token_weight are both 0; give one of them a weight")
    if cfg.supervised.head_hidden:
        raise UserError(
            f"--supervised.head_hidden {cfg.supervised.head_hidden}: what is taught has linear heads; leave it out"
        )
    taken = labelled_groups(cfg, facts, preset, "scratch")
    return settle(ResolvedTaughtRecipe, cfg, preset=preset.name, model=facts.model, taught=cfg.taught, **taken)
