"""Patches of one pixel: what has no deviation is not normalised."""

from __future__ import annotations

from typing import Any

import pytest
from ssl_vit.configs import ModelConfig, networks, presets
from ssl_vit.configs.networks import wanted
from ssl_vit.core.errors import UserError
from ssl_vit.methods import beit, mae
from ssl_vit.methods.method import Facts
from ssl_vit.models.build import build_backbone, model_facts
from ssl_vit.objectives.beit import BEiT
from ssl_vit.objectives.mae import MAE

METHODS: dict[str, Any] = {"mae": (mae.resolve, mae.MAERecipe, MAE), "beit": (beit.resolve, beit.BEiTRecipe, BEiT)}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("patch", "normalised"), [(1, False), (2, True), (4, True)])
def test_patches_of_one_pixel_are_taken_as_they_are(name: str, patch: int, normalised: bool) -> None:
    resolve, recipe, objective = METHODS[name]
    asked = ModelConfig("vit_micro", img_size=20, patch_size=patch)
    about = model_facts(*wanted(asked, 20))
    preset = presets.preset_for("px32-cpu", 20, cpu=True)
    model = networks.resolve_model(asked, 20, about, preset.name)
    cfg = getattr(resolve(recipe(), Facts(1000, model, about), preset), name)
    assert cfg.norm_pix == normalised
    backbone = build_backbone(model, 1)
    assert objective(backbone, cfg).backbone is backbone
    if not normalised:
        with pytest.raises(UserError, match=f"--{name}.norm_pix true divides by the deviation inside a patch"):
            objective(backbone, type(cfg)(**vars(cfg) | {"norm_pix": True}))
        objective(build_backbone(model, 3), type(cfg)(**vars(cfg) | {"norm_pix": True}))  # three numbers have one
