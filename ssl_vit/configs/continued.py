"""Options of pre-training that begins with a network's weights, and must not forget what they know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ssl_vit.configs.facts import LATER, Range
from ssl_vit.configs.fit import ResolvedOptim
from ssl_vit.configs.settled import OPEN, Resolved, fill, settle
from ssl_vit.core.errors import UserError

LAYER_DECAY = 0.75
"""Where nobody chose one: as in fine-tuning."""


@dataclass(frozen=True)
class ContinuedConfig:
    """Pre-training that begins with a network's weights; without any, all of these stay open."""

    rate: Annotated[float | None, Range(1e-6, 1), LATER] = None
    """Learning rate of the backbone as a share of the usual one, which heads and decoders have, because they begin at
    random; default: 0.1. Below the last block --optim.layer_decay lowers it further, there 0.75 unless another is
    given."""
    length: Annotated[float | None, Range(1e-6, 1), LATER] = None
    """Length as a share of the preset's, where --fit.epochs is not given, at least one epoch; default: 0.1."""
    heads_first: Annotated[float | None, Range(0, 0.5), LATER] = None
    """Share of all steps at whose beginning heads and decoders are trained alone and the backbone stays as it is; over
    as many steps again its rate then rises from 0. Default: 0.1."""
    blocks: Annotated[int | None, Range(1), LATER] = None
    """Train the last so many blocks alone, and the norm behind them. Those below and the embeddings stay as they are
    bit for bit: they have no gradient, no weight decay and no optimiser state. Default: all are trained."""
    least_agreement: Annotated[float | None, Range(0, 1), LATER] = None
    """Drift alarm: of the 10 nearest neighbours that each of at most 512 kept images of the pool had by the starting
    network, the share that it must still have. Where fewer are left, training stops, and the last state that was looked
    at before is exported. 0 never stops; default: 0.5, what a network shares with another that was trained from scratch
    (docs/runs.md)."""
    least_cka: Annotated[float | None, Range(0, 1), LATER] = None
    """Drift alarm, as least_agreement: the least similarity (linear CKA) of the kept images' features to those of the
    starting network. 0 never stops; default: 0.5."""
    look_percent: Annotated[float | None, Range(0.1, 100), LATER] = None
    """Per cent of all steps from one look of the drift alarm to the next; default: 5."""


@dataclass(frozen=True)
class ResolvedContinued(ContinuedConfig, Resolved):
    """The same of a run that begins with weights; only ``blocks`` may be open, for all of them."""

    rate: float = OPEN
    length: float = OPEN
    heads_first: float = OPEN
    least_agreement: float = OPEN
    least_cka: float = OPEN
    look_percent: float = OPEN


def resolve_continued(cfg: ContinuedConfig, started: bool) -> ContinuedConfig:
    """Values for what is open, of a run that is ``started`` from weights; UserError for options of one that is not."""
    given = [name for name, value in vars(cfg).items() if value is not None]
    if not started:
        if given:
            raise UserError(
                f"--continued.{given[0]} is for pre-training that begins with weights; name them (--model.weights), or "
                "leave it out"
            )
        return cfg
    return fill(
        ResolvedContinued, cfg, rate=0.1, length=0.1, heads_first=0.1, least_agreement=0.5, least_cka=0.5,
        look_percent=5.0,
    )  # fmt: skip


def lowered_downwards(optim: ResolvedOptim) -> ResolvedOptim:
    """An optimiser with layer decay, the given one or else fine-tuning's."""
    return optim if optim.layer_decay < 1 else settle(ResolvedOptim, optim, layer_decay=LAYER_DECAY)
