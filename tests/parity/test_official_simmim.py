"""The official SimMIM's tensors in float64: decoder and loss of any encoder, and its whole ViT with shared bias."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from ssl_vit.models.pooled import PooledBackbone
from ssl_vit.objectives.simmim import SimMIM, error_of_hidden, hidden_pixels
from timm.models.beit import Beit
from torch import Tensor, nn

FIXTURES = Path(__file__).parent / "fixtures"
GOLDEN = json.loads((FIXTURES / "golden.json").read_text())
LOSS, VIT = load_file(FIXTURES / "simmim_loss.safetensors"), load_file(FIXTURES / "simmim_vit.safetensors")
EXACT = {"rtol": 0.0, "atol": 1e-9}


def as_official(loss: Tensor, mask: Tensor, patch: int) -> Tensor:
    """Our loss with the 1e-5 that the official one adds to the number of hidden pixels (``mask`` is of patches)."""
    pixels = int(mask.sum()) * patch**2
    return loss * pixels / (pixels + 1e-5)


@pytest.mark.parametrize("encoder", ["vit", "swin"])
def test_loss_and_decoder_of_any_encoder(encoder: str) -> None:
    """An encoder is its feature map here: reconstruction, loss and their gradients, of strides 4 and 8."""
    c = GOLDEN["simmim_loss"]["config"][f"{encoder}."]
    own = {k.removeprefix(f"{encoder}."): v for k, v in LOSS.items() if k.startswith(f"{encoder}.")}
    stride, z, images = c["encoder_stride"], own["z"].requires_grad_(), own["images"].requires_grad_()
    weight = own["state.decoder.0.weight"].requires_grad_()
    found = nn.functional.conv2d(z, weight, own["state.decoder.0.bias"])
    predicted = nn.PixelShuffle(stride)(found)
    torch.testing.assert_close(predicted, own["reconstruction"], **EXACT)
    predicted.retain_grad()
    hidden = hidden_pixels(own["mask"].bool(), images.shape[2])
    loss = as_official(error_of_hidden(predicted, images, hidden), own["mask"], c["patch_size"])
    torch.testing.assert_close(loss, own["loss"], **EXACT)
    loss.backward()
    for tensor, name in ((predicted, "reconstruction"), (z, "z"), (weight, "decoder.0.weight"), (images, "images")):
        assert tensor.grad is not None
        torch.testing.assert_close(tensor.grad, own[f"grad.{name}"], **EXACT)


def official_vit() -> SimMIM:
    """timm's BEiT is the official ViT; a patch is found that its stem makes the official mask token of."""
    c = GOLDEN["simmim_vit"]["config"]
    state = {k.removeprefix("state.encoder."): v for k, v in VIT.items() if k.startswith("state.encoder.")}
    token = state.pop("mask_token")[0, 0]
    del state["rel_pos_bias.relative_position_index"]
    net = Beit(
        img_size=c["img_size"], patch_size=c["patch_size"], embed_dim=c["embed_dim"], depth=c["depth"],
        num_heads=c["num_heads"], mlp_ratio=c["mlp_ratio"], init_values=c["init_values"], num_classes=0,
        global_pool="token", use_abs_pos_emb=False, use_rel_pos_bias=False, use_shared_rel_pos_bias=True,
    )  # fmt: skip
    net.pretrained_cfg = {"input_size": (3, c["img_size"], c["img_size"]), "classifier": "head"}
    left = net.double().load_state_dict(state, strict=False)
    assert left.unexpected_keys == []
    assert all("k_bias" in name or "index" in name for name in left.missing_keys)
    simmim = SimMIM(PooledBackbone(net, "beit", {}, c["img_size"])).double()
    with torch.no_grad():
        simmim.decoder.weight.copy_(VIT["state.decoder.0.weight"])
        simmim.decoder.bias.copy_(VIT["state.decoder.0.bias"])  # pyright: ignore[reportOptionalMemberAccess]
        weight = state["patch_embed.proj.weight"].flatten(1)
        pixels = torch.linalg.lstsq(weight, token - state["patch_embed.proj.bias"]).solution
        simmim.patch.copy_(pixels.view_as(simmim.patch))
    return simmim


def test_the_whole_vit() -> None:
    """Map, loss and gradients.

    A hidden patch of pixels gets the gradient that the official mask token gets, through the stem; and the stem, which
    the official mask token goes around, the part of it that comes through the hidden patch besides.
    """
    c = GOLDEN["simmim_vit"]["config"]
    simmim, images, mask = official_vit(), VIT["images"].requires_grad_(), VIT["mask"].bool()
    assert simmim.stride == c["patch_size"]
    features: list[Tensor] = []
    simmim.decoder.register_forward_pre_hook(lambda module, args: features.append(args[0]))
    loss = as_official(simmim({"images": images, "hidden": mask}).loss, mask, c["patch_size"])
    torch.testing.assert_close(features[0], VIT["map"], **EXACT)
    torch.testing.assert_close(loss, VIT["loss"], **EXACT)
    loss.backward()
    named = {name: parameter.grad for name, parameter in simmim.named_parameters()}
    token, stem = VIT["grad.encoder.mask_token"][0, 0], VIT["state.encoder.patch_embed.proj.weight"]
    through_patch = token[:, None] * simmim.patch.detach().flatten()
    for name, wanted in {
        "decoder.bias": VIT["grad.decoder.0.bias"],
        "backbone.model.blocks.0.attn.qkv.weight": VIT["grad.encoder.blocks.0.attn.qkv.weight"],
        "backbone.model.rel_pos_bias.relative_position_bias_table":
            VIT["grad.encoder.rel_pos_bias.relative_position_bias_table"],
        "patch": (token @ stem.flatten(1)).view_as(simmim.patch),
        "backbone.model.patch_embed.proj.weight":
            VIT["grad.encoder.patch_embed.proj.weight"] + through_patch.view_as(stem),
    }.items():  # fmt: skip
        torch.testing.assert_close(named[name], wanted, **EXACT, msg=lambda text, name=name: f"{name}: {text}")
    torch.testing.assert_close(images.grad, VIT["grad.images"], **EXACT)
