"""The official implementation's tensors in float64: loss, prediction, mask, gradients; positions; learning rate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from ssl_vit.core.masking import Mask, kept_patches, random_mask
from ssl_vit.core.schedules import warmup_cosine
from ssl_vit.methods.mae import ResolvedMAE
from ssl_vit.models.positions import sincos_2d
from ssl_vit.models.vit import ViTBackbone
from ssl_vit.objectives.mae import MAE
from ssl_vit.training.optim import parameter_groups
from timm.models.vision_transformer import VisionTransformer

FIXTURES = Path(__file__).parent / "fixtures"
GOLDEN = json.loads((FIXTURES / "golden.json").read_text())
TENSORS = load_file(FIXTURES / "mae.safetensors")


def official_names(name: str) -> str:
    """Our parameter name for one of the official implementation."""
    for theirs, ours in (
        ("decoder_embed", "embed"),
        ("decoder_blocks", "blocks"),
        ("decoder_norm", "norm"),
        ("decoder_pred", "pred"),
        ("mask_token", "mask_token"),
    ):
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    return "backbone.vit." + name


def build(norm_pix: bool, ratio: float) -> MAE:
    c = GOLDEN["mae"]["config"]
    vit = VisionTransformer(
        img_size=c["img_size"], patch_size=c["patch_size"], embed_dim=c["embed_dim"], depth=c["depth"],
        num_heads=c["num_heads"], num_classes=0, global_pool="token",
    )  # fmt: skip
    cfg = ResolvedMAE(ratio, norm_pix, c["decoder_embed_dim"], c["decoder_depth"], c["decoder_num_heads"])
    mae = MAE(ViTBackbone(vit, "vit", {}), cfg).double()
    state = {k.removeprefix("state."): v for k, v in TENSORS.items() if k.startswith("state.")}
    mae.positions = state.pop("decoder_pos_embed")[0, 1:]
    mae.load_state_dict({official_names(k): v for k, v in state.items()})
    return mae


@pytest.mark.parametrize("ratio", [0.75, 0.9])
@pytest.mark.parametrize("norm_pix", [False, True])
def test_loss_prediction_mask_and_gradients(norm_pix: bool, ratio: float) -> None:
    case = f"norm{int(norm_pix)}_r{round(ratio * 100)}."
    mae = build(norm_pix, ratio)
    images, noise = TENSORS["images"], TENSORS["noise"]
    mask = random_mask(noise, kept_patches(64, ratio))
    hidden = torch.zeros_like(noise).scatter_(1, mask.mask_ids, 1.0)
    assert torch.equal(hidden, TENSORS[case + "mask"])
    output = mae({"images": images, "keep_ids": mask.keep_ids, "mask_ids": mask.mask_ids})
    assert (output.loss - TENSORS[case + "loss"]).abs() <= 1e-9
    output.loss.backward()
    parameters = dict(mae.named_parameters())
    checked = 0
    for key, wanted in TENSORS.items():
        if key.startswith(case + "grad."):
            grad = parameters[official_names(key.removeprefix(case + "grad."))].grad
            assert grad is not None
            assert (grad - wanted).abs().max() <= 1e-9, key
            checked += 1
    assert checked == 4
    # The prediction of every patch, put back into raster order.
    every = mae.decode(mae.encode(images, mask.keep_ids), mask, every=True)
    order = torch.cat([mask.keep_ids, mask.mask_ids], dim=1)[:, :, None].expand_as(every)
    raster = torch.empty_like(every).scatter_(1, order, every)
    assert (raster - TENSORS[case + "pred"]).abs().max() <= 1e-9


def test_hidden_patches_alone_are_predicted_as_among_all() -> None:
    mae = build(True, 0.75)
    mask = random_mask(TENSORS["noise"], 16)
    tokens = mae.encode(TENSORS["images"], mask.keep_ids)
    alone = mae.decode(tokens, mask)
    every = mae.decode(tokens, mask, every=True)
    assert (alone - every[:, 16:]).abs().max() <= 1e-12


def test_order_of_visible_tokens_does_not_matter() -> None:
    mae = build(True, 0.75)
    mask = random_mask(TENSORS["noise"], 16)
    turned = Mask(mask.keep_ids.flip(1), mask.mask_ids)
    losses = [
        mae({"images": TENSORS["images"], "keep_ids": m.keep_ids, "mask_ids": m.mask_ids}).loss for m in (mask, turned)
    ]
    assert (losses[0] - losses[1]).abs() <= 1e-12


def test_sincos_positions() -> None:
    golden = load_file(FIXTURES / "sincos.safetensors")
    assert (sincos_2d(64, (14, 14)) - golden["dim64_grid14"]).abs().max() <= 1e-12
    assert (sincos_2d(48, (8, 8)) - golden["dim48_grid8_cls"][1:]).abs().max() <= 1e-12
    assert golden["dim48_grid8_cls"][0].abs().max() == 0


def test_backbone_fills_positions_as_the_official_model_has_them() -> None:
    c = GOLDEN["mae"]["config"]
    vit = VisionTransformer(img_size=32, patch_size=4, embed_dim=c["embed_dim"], depth=1, num_heads=3, num_classes=0)
    backbone = ViTBackbone(vit.double(), "vit", {})
    backbone.set_sincos_positions()
    assert vit.pos_embed is not None
    assert (vit.pos_embed - TENSORS["state.pos_embed"]).abs().max() <= 1e-7  # recorded after float32 storage


def test_learning_rate_of_every_step() -> None:
    g = GOLDEN["mae_lr"]
    per_epoch, total = g["steps_per_epoch"], g["epochs"] * g["steps_per_epoch"]
    for step, wanted in enumerate(g["values"]):
        rate = warmup_cosine(
            step, total_steps=total, warmup_steps=g["warmup_epochs"] * per_epoch, peak=g["lr"], final=g["min_lr"]
        )
        assert abs(rate - wanted) <= 1e-15


def test_layer_decay_groups() -> None:
    g = GOLDEN["layer_decay"]
    vit = VisionTransformer(img_size=32, patch_size=8, embed_dim=48, depth=4, num_heads=3, num_classes=10)
    backbone = ViTBackbone(vit, "vit", {})
    groups = parameter_groups(
        vit.named_parameters(), weight_decay=g["weight_decay"], layer_decay=g["layer_decay"],
        layer_id=backbone.layer_id, top_layer=backbone.depth + 1, decays_tokens=False,
    )  # fmt: skip
    found = {name: (group["lr_scale"], group["weight_decay"]) for group in groups for name in group["names"]}
    assert set(found) == set(g["groups"])
    for name, (scale, decay) in g["groups"].items():
        assert found[name] == (pytest.approx(scale, abs=1e-12), decay), name
