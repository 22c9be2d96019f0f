"""What a network's weights begin with, in one table: every method, and what no method makes."""

from __future__ import annotations

from dataclasses import dataclass

from ssl_vit.methods import METHODS
from ssl_vit.methods.method import Look

BASELINE = "scratch"
"""The start that all others are compared with."""
_PROBED, _TRAINED = ("knn", "linear"), ("train",)


@dataclass(frozen=True)
class Start:
    """How labels may be used with some weights, and how they are called and drawn."""

    name: str
    title: str
    """In tables and sentences."""
    uses: tuple[str, ...]
    """``train`` (all weights), ``linear``, ``knn``: the first that was run is what sentences are about."""
    look: Look | None = None
    made: bool = False
    """Whether a verdict pre-trains it itself, by the method of that name."""
    pretrained: bool = False
    """Whether anything was pre-trained."""
    unasked: bool = True
    """Whether a verdict has it take part without being told to."""
    was: str = ""
    """How a sentence begins that tells of it: ``Raw pixels were``."""

    @property
    def subject(self) -> str:
        """The beginning of a sentence about it in the past."""
        return self.was or f"{self.title} was"


_OTHERS = (
    Start("public", "public weights", ("train", "linear", "knn"),
          Look("#007a57", "#3fd6a6", "D", (7.0, 1.6, 1.5, 1.6)), pretrained=True, was="Public weights were"),
    Start(BASELINE, "from scratch", _TRAINED, Look("#222223", "#ececed", "X", (2.6, 1.6))),
    Start("cnn", "CNN from scratch", _TRAINED, Look("#7d2377", "#d583c8", "^", (1.2, 1.4)), was="The CNN was"),
    Start("pixels", "raw pixels", _PROBED, Look("#665a00", "#e6d24a", "v", (5.0, 1.4, 1.2, 1.4, 1.2, 1.4)),
          was="Raw pixels were"),
    Start("random", "random weights", _PROBED, Look("#7d7d82", "#8d8d92", "P", (1.0, 2.4)), was="Random weights were"),
)  # fmt: skip


def starts() -> dict[str, Start]:
    """Every start by name, in the order of reports: methods first."""
    own = (
        Start(m.name, m.title, ("train", "linear", "knn"), m.look, made=True, pretrained=True, unasked=m.unasked)
        for m in METHODS.values()
    )
    return {start.name: start for start in (*own, *_OTHERS)}


def titles() -> dict[str, str]:
    """What people call every start."""
    return {name: start.title for name, start in starts().items()}


def pretrained() -> tuple[str, ...]:
    """Starts of which something was pre-trained."""
    return tuple(name for name, start in starts().items() if start.pretrained)


def untrained() -> tuple[str, ...]:
    """Starts without any training: features are used as they are."""
    return tuple(name for name, start in starts().items() if start.uses == _PROBED)


def start_of(objective: str) -> str | None:
    """The start that a record or row tells of: ``MAE``, ``DINO, student``, ``raw pixels``; None for none."""
    named = {start.title: name for name, start in starts().items()}
    return named.get(objective.partition(",")[0])
