"""What a network's weights begin with, in one table: every method, and what no method makes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ssl_vit.methods import METHODS
from ssl_vit.methods.method import Look

BASELINE = "scratch"
"""The start that all others are compared with."""
VIT, PUBLIC = "vit", "public"
"""Networks of a verdict: that of ``--model``, and that of public weights."""
WORTH = ("mae", "cnn", "public", "lejepa@cnn", "lejepa@public", "dino")
"""What takes part unasked beside the baseline and untrained features, what pays first before what pays later. A CNN
costs no pre-training, and beats the ViT from scratch wherever it was tried; public weights cost none either. DINO costs
several times MAE's compute, and gained no more (benchmarks/results)."""


def family_of(preset: str) -> str | None:
    """The family of networks that a method has for a preset in the place of ViTs; it stands for CNNs there."""
    own = [dict(method.networks).get(preset) for method in METHODS.values() if method.unasked_elsewhere]
    return next((name.rpartition("_")[0] for name in own if name), None)


def worth(preset: str, cnn: str | None) -> tuple[str, ...]:
    """``WORTH``, but first what has a network of its own for the preset, by trials (benchmarks/results/league.md).

    Args:
        preset: Its name.
        cnn: The network that stands for CNNs; None where there is none.
    """
    family = family_of(preset)
    if cnn is None or family is None or not cnn.startswith(f"{family}_"):
        return WORTH
    own = [f"{m.name}@cnn" for m in METHODS.values() if m.unasked_elsewhere and preset in dict(m.networks)]
    return tuple(dict.fromkeys(("cnn", *own, *WORTH)))


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
    method: str = ""
    """By which a verdict pre-trains it itself; empty where it does not."""
    network: str = VIT
    """By its name in ``--verdict.networks``, or ``public``."""
    pretrained: bool = False
    """Whether anything was pre-trained."""
    unasked: bool = True
    """Whether a verdict has it take part without being told to."""
    was: str = ""
    """How a sentence begins that tells of it: ``Raw pixels were``."""

    @property
    def made(self) -> bool:
        """Whether a verdict pre-trains it itself."""
        return bool(self.method)

    @property
    def subject(self) -> str:
        """The beginning of a sentence about it in the past."""
        return self.was or f"{self.title} was"


_OTHERS = (
    Start("public", "public weights", ("train", "linear", "knn"),
          Look("#007a57", "#3fd6a6", "D", (7.0, 1.6, 1.5, 1.6)), network=PUBLIC, pretrained=True,
          was="Public weights were"),
    Start(BASELINE, "from scratch", _TRAINED, Look("#222223", "#ececed", "X", (2.6, 1.6))),
    Start("cnn", "CNN from scratch", _TRAINED, Look("#7d2377", "#d583c8", "^", (1.2, 1.4)), network="cnn",
          was="The CNN was"),
    Start("pixels", "raw pixels", _PROBED, Look("#665a00", "#e6d24a", "v", (5.0, 1.4, 1.2, 1.4, 1.2, 1.4)),
          was="Raw pixels were"),
    Start("random", "random weights", _PROBED, Look("#7d7d82", "#8d8d92", "P", (1.0, 2.4)), was="Random weights were"),
)  # fmt: skip


def starts(named: Iterable[str] = ()) -> dict[str, Start]:
    """Every start by name, in the order of reports: methods first, then those of ``named`` that no table has."""
    names = dict.fromkeys((*METHODS, *(start.name for start in _OTHERS), *named))
    return {name: start_called(name) for name in names}


def start_called(name: str) -> Start:
    """One start: of the table, ``mae@cnn`` for a method on another network, or another network from scratch."""
    for start in _OTHERS:
        if start.name == name:
            return start
    method, _, network = name.partition("@")
    if method not in METHODS:
        return Start(name, f"{name} from scratch", _TRAINED, network=name)
    own, uses = METHODS[method], ("train", "linear", "knn")
    if not network:
        return Start(name, own.title, uses, own.look, name, pretrained=True, unasked=own.unasked)
    where = {"cnn": "on a CNN", PUBLIC: "from public weights"}.get(network, f"on {network}")
    return Start(name, f"{own.title} {where}", uses, None, method, network, pretrained=True)


def from_scratch(name: str) -> str:
    """Training the same network on labels alone; of public weights, which no network here is trained as, themselves."""
    network = start_called(name).network
    return BASELINE if network == VIT else network


def titles(named: Iterable[str] = ()) -> dict[str, str]:
    """What people call every start; ``named`` as in ``starts``."""
    return {name: start.title for name, start in starts(named).items()}


def pretrained(named: Iterable[str] = ()) -> tuple[str, ...]:
    """Starts of which something was pre-trained; ``named`` as in ``starts``."""
    return tuple(name for name, start in starts(named).items() if start.pretrained)


def untrained() -> tuple[str, ...]:
    """Starts without any training: features are used as they are."""
    return tuple(name for name, start in starts().items() if start.uses == _PROBED)


def start_of(objective: str) -> str | None:
    """The start that a record or row tells of: ``MAE``, ``DINO, student``, ``raw pixels``; None for none."""
    named = {start.title: name for name, start in starts().items()}
    return named.get(objective.partition(",")[0])
