"""Networks beside the Vision Transformer: a ResNet of its size, and public weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
import timm
import torch

from ssl_vit.configs import ModelConfig
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.data.images import ImageSet
from ssl_vit.data.scale import PixelScale, measure_scale
from ssl_vit.data.sources.hub import ask_hub
from ssl_vit.exports.origin import recorded_data
from ssl_vit.exports.timm_folder import export_backbone, load_backbone
from ssl_vit.models.build import make_backbone, model_facts
from ssl_vit.models.vit import ViTBackbone
from ssl_vit.verdict.study import Study

_RESNETS = {
    "test_resnet": 372_688, "resnet10t": 4_922_488, "resnet14t": 8_032_632, "resnet18": 11_176_512,
    "resnet34": 21_284_672, "resnet50": 23_508_032, "resnet101": 42_500_160, "resnet152": 58_143_808,
    "wide_resnet101_2": 124_837_696,
}  # fmt: skip
"""timm's names and parameters without a classifier."""
PUBLIC = "vit_small_patch16_224.dino"
_LEAST = 64
"""Pixels from which public weights of photographs at 224 px are worth their price unasked."""


def cnn_for(name: str | None, parameters: int, size: int, window: int | None = None) -> ModelConfig:
    """The ResNet that stands for CNNs; small images are enlarged for it, because it halves them five times.

    Without a name it is the one whose number of parameters is nearest to the Vision Transformer's (in ratio). The input
    has ``size`` pixels a side; windows (a side in pixels, too) are not enlarged.

    Raises:
        UserError: For a name that timm does not know.
    """
    name = name or min(_RESNETS, key=lambda n: max(_RESNETS[n] / parameters, parameters / _RESNETS[n]))
    try:
        model_facts(name)
    except UserError as error:
        raise UserError(str(error).replace("--model.name", "--verdict.cnn")) from error
    enlarged = max(32 if size <= 16 else 64, size)
    return ModelConfig(name, img_size=enlarged if window is None else min(enlarged, window), pool="mean")


def prepare_public(study: Study, pool: ImageSet, *, asked: bool) -> str | None:
    """Puts public weights where evaluation finds them.

    They may have been ``asked`` for, or only wanted where they can be had. For grey images the first layer's RGB
    weights are added up, as timm does it.

    Returns:
        Why they cannot take part; None where they do.

    Raises:
        UserError: For a name or a folder that was given and is none.
    """
    place, given = study.folder / "runs" / "public" / "backbone", study.recipe.verdict.public
    if (place / "config.json").exists():
        return None
    size = study.model.img_size or 0
    if not asked and size < _LEAST:
        return f"networks for photographs of 224 px cost much on images of {size} px; name one with --verdict.public"
    about = recorded_data(study.recipe.data, study.recipe.eval.data)
    about |= {"objective": "public weights", "public": given or PUBLIC}
    if given and Path(given).expanduser().exists():
        exported = load_backbone(given)
        if exported.backbone.channels != pool.form.channels:
            raise UserError(
                f"--verdict.public {given} reads {exported.backbone.channels} channel(s), the images have "
                f"{pool.form.channels}; name a timm model, whose first layer is adapted"
            )
        if why := _too_large(study, given, exported.size):
            return why
        scale = exported.scale if exported.scale.bits == pool.form.bits else own_scale(study, pool, exported.size)
        export_backbone(exported.backbone, place, scale, "cls" if exported.pool == "cls" else "mean", about)
        return None
    name = given or PUBLIC
    if name not in timm.list_pretrained():
        close = did_you_mean(name, timm.list_pretrained(f"*{name.partition('.')[0]}*") or timm.list_pretrained())
        raise UserError(f"--verdict.public {name} is neither a folder nor a timm model with pretrained weights{close}")
    released: Any = timm.get_pretrained_cfg(name)
    if why := _too_large(study, name, released.input_size[-1]):
        return why
    try:
        ask_hub(lambda timeout: huggingface_hub.HfApi().model_info(str(released.hf_hub_id), timeout=timeout))
        model: Any = timm.create_model(name, pretrained=True, num_classes=0, in_chans=pool.form.channels)
    except Exception as error:  # whatever the network, the hub or a cache raise
        why = f"{name} could not be downloaded and is not in the cache"
        if given:
            raise UserError(f"--verdict.public: {why}; name a folder that timm saved") from error
        return why
    cfg = model.pretrained_cfg
    size = cfg["input_size"][-1]
    args = {"in_chans": pool.form.channels} | ({"img_size": size} if cfg.get("fixed_input_size") else {})
    backbone = make_backbone(name.partition(".")[0], args, img_size=size)
    backbone.load_timm_state({k: v for k, v in model.state_dict().items() if k in backbone.timm_state()})
    scale = PixelScale(tuple(cfg["mean"]), tuple(cfg["std"]), 8)
    if (pool.form.channels, pool.form.bits) != (3, 8):  # no photographs
        scale = own_scale(study, pool, backbone.img_size)
    token = isinstance(backbone, ViTBackbone) and backbone.class_token
    with torch.no_grad():
        export_backbone(backbone, place, scale, "cls" if token else "mean", about)
    return None


def _too_large(study: Study, name: str, size: int) -> str | None:
    """Why a network cannot see the images: windows are at native scale."""
    window = study.recipe.data.window or size
    words = f"{name} reads {size} px, and windows of {window} px (--data.window) are not enlarged"
    return words if window < size else None


def own_scale(study: Study, pool: ImageSet, size: int) -> PixelScale:
    """Statistics of the images themselves, as a network of that input size in pixels sees them."""
    return measure_scale(pool.on_canvas(study.recipe.data.canvas, size, study.recipe.data.window))
