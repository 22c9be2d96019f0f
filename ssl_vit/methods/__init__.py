"""The methods in one table: options, presets and their resolution side by side; importing this never imports torch."""

from __future__ import annotations

from typing import Any

from ssl_vit.configs import (
    AtlasRecipe,
    EmbedRecipe,
    ExportRecipe,
    FiguresRecipe,
    KNNRecipe,
    LinearRecipe,
    PredictRecipe,
    TransferRecipe,
)
from ssl_vit.configs.doctor import DoctorRecipe
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.methods import beit, diet, dino, distill, lejepa, mae, simmim
from ssl_vit.methods.method import Facts, Look, Method
from ssl_vit.methods.supervised import FinetuneRecipe, LabelledRecipe, SupervisedRecipe
from ssl_vit.methods.taught import TaughtRecipe

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        mae.METHOD,
        dino.METHOD,
        simmim.METHOD,
        lejepa.METHOD,
        diet.METHOD,
        distill.METHOD,
        beit.METHOD,
    )
}
"""By name, in the order of reports; a new method is one more entry here."""


LABELLED: dict[str, type[LabelledRecipe]] = {
    "supervised": SupervisedRecipe,
    "taught": TaughtRecipe,
    "finetune": FinetuneRecipe,
}
"""What trains all weights on labels, and judges itself, by the names of commands and results."""


def known_recipes() -> tuple[type[Any], ...]:
    """Every recipe but the verdict's: files of runs are read by what is declared beside their options."""
    methods = (method.recipe for method in METHODS.values())
    judging = (KNNRecipe, LinearRecipe, PredictRecipe, EmbedRecipe, AtlasRecipe, FiguresRecipe, TransferRecipe)
    return (*methods, *LABELLED.values(), *judging, ExportRecipe, DoctorRecipe)


def method_named(name: str, *others: str) -> Method:
    """The method of that name; UserError, with the table and ``others`` that would do, for a name that is none."""
    if name not in METHODS:
        names = (*METHODS, *others)
        raise UserError(f"there is no method {name}; methods are {', '.join(names)}{did_you_mean(name, names)}")
    return METHODS[name]


def method_of(about: dict[str, Any]) -> Method:
    """The method that made a backbone, of which this is recorded; UserError where none of the table did."""
    for method in METHODS.values():  # folders of version 0.1 tell the title alone
        if about.get("method", str(about.get("objective")).partition(",")[0]) in (method.name, method.title):
            return method
    raise UserError(f"it was made by {about.get('objective', 'something else')}, not by one of {', '.join(METHODS)}")


__all__ = ["LABELLED", "METHODS", "Facts", "Look", "Method", "known_recipes", "method_named", "method_of"]
