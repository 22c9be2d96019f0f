"""BEiT of transformers and relative positions of timm in float64: all patches, some of them, and BEiT's loss."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from ssl_vit.methods.beit import ResolvedBEiT
from ssl_vit.models.backbone import Tokens
from ssl_vit.models.tokens import FamilyTokens
from ssl_vit.objectives.beit import BEiT, word_loss
from timm.models.beit import Beit
from timm.models.vision_transformer_relpos import VisionTransformerRelPos
from torch import Tensor

FIXTURES = Path(__file__).parent / "fixtures"
EXACT = {"rtol": 0.0, "atol": 1e-9}
SIZES: dict[str, Any] = {
    "img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3, "mlp_ratio": 2.0,
    "init_values": 0.1, "num_classes": 0,
}  # fmt: skip
NAMES = (
    (r"^beit\.", ""), (r"^embeddings\.cls_token", "cls_token"), (r"^embeddings\.position_embeddings", "pos_embed"),
    (r"^embeddings\.patch_embeddings\.projection", "patch_embed.proj"), (r"^layers\.", "blocks."),
    (r"attention\.o_proj", "attn.proj"), (r"lambda_", "gamma_"), (r"layernorm_before", "norm1"),
    (r"layernorm_after", "norm2"), (r"^shared_position_bias", "rel_pos_bias"),
    (r"relative_position_bias\.relative_position_bias_table", "attn.relative_position_bias_table"),
    (r"^pooler\.layernorm", "fc_norm"), (r"^layernorm", "norm"), (r"^rel_pos_bias\.attn\.", "rel_pos_bias."),
)  # fmt: skip


class Recorded(FamilyTokens):
    """Of whatever grid: those recorded are not all square."""

    def width_at(self, size: int) -> int | None:
        return self.model.num_features  # pyright: ignore[reportReturnType]


def timm_name(name: str) -> str:
    for theirs, ours in NAMES:
        name = re.sub(theirs, ours, name)
    return name


def timm_state(recorded: dict[str, Tensor]) -> dict[str, Tensor]:
    """timm's tensors, of those of transformers: queries, keys and values are one matrix there."""
    given = {k.removeprefix("state."): v for k, v in recorded.items() if k.startswith("state.")}
    found: dict[str, Tensor] = {}
    for name, value in given.items():
        part = re.fullmatch(r"(.*layers\.\d+\.)attention\.([qkv])_proj\.(weight|bias)", name)
        if part is None:
            found[timm_name(name)] = value
        elif part[3] == "bias":
            found[timm_name(part[1]) + f"attn.{part[2]}_bias"] = value
        elif part[2] == "q":
            rows = [given[f"{part[1]}attention.{which}_proj.weight"] for which in "qkv"]
            found[timm_name(part[1]) + "attn.qkv.weight"] = torch.cat(rows)
    return found


def beit(recorded: dict[str, Tensor], **options: Any) -> Recorded:
    net = Beit(**{**SIZES, "use_abs_pos_emb": False, **options}).double()
    net.pretrained_cfg = {"input_size": (3, 16, 16), "classifier": "head"}
    left = net.load_state_dict(timm_state(recorded), strict=False)
    assert {name for name in left.unexpected_keys if "mask_token" not in name and "lm_head" not in name} == set()
    assert all("k_bias" in name or "index" in name for name in left.missing_keys)
    return Recorded(net, "beit", {}, 16).double().eval()


def all_of(tokens: Tokens) -> Tensor:
    return torch.cat([tokens.prefix, tokens.patches], dim=1)


def gradient_of(backbone: FamilyTokens, name: str) -> Tensor | None:
    """Of a tensor of transformers; k and v are rows of timm's."""
    part = re.fullmatch(r"(.*layers\.\d+\.)attention\.([qkv])_proj\.weight", name)
    if part is None:
        return backbone.model.get_parameter(timm_name(name)).grad
    whole = backbone.model.get_parameter(timm_name(part[1]) + "attn.qkv.weight").grad
    return None if whole is None else whole.chunk(3)["qkv".index(part[2])]


@pytest.mark.parametrize("which", ["all", "kept"])
@pytest.mark.parametrize("shared", [False, True])
def test_beit(shared: bool, which: str) -> None:
    """Tokens, what is pooled of them and gradients: without the last norm where the mean is normalised instead."""
    recorded = load_file(FIXTURES / f"beit_{'shared' if shared else 'layer'}_bias.safetensors")
    options = {"use_shared_rel_pos_bias": True, "use_abs_pos_emb": True, "global_pool": "token"}
    backbone = beit(recorded, **(options if shared else {"use_rel_pos_bias": True}))
    images, part = recorded["images"].requires_grad_(), "dropped." if which == "kept" else ""
    keep = recorded["keep"] if part else None
    tokens = all_of(backbone.forward_tokens(images, keep_ids=keep, norm=shared))
    torch.testing.assert_close(tokens, recorded[f"{part}tokens"], **EXACT)
    model: Any = backbone.model
    pooled = tokens[:, 0] if shared else model.fc_norm(tokens[:, 1:].mean(dim=1))
    torch.testing.assert_close(pooled, recorded[f"{part}pooled"], **EXACT)
    if not part:
        torch.testing.assert_close(backbone.forward_pooled(images, pool="mean"), recorded["pooled"], **EXACT)
    (tokens * recorded["probe.dropped" if part else "probe.tokens"]).sum().backward()
    wanted = {k.removeprefix(f"{part}grad."): v for k, v in recorded.items() if k.startswith(f"{part}grad.")}
    torch.testing.assert_close(images.grad, wanted.pop("images"), **EXACT)
    assert len(wanted) == 5
    for name, gradient in wanted.items():
        torch.testing.assert_close(gradient_of(backbone, name), gradient, **EXACT)


@pytest.mark.parametrize("kind", ["bias_cls", "mlp"])
def test_relative_positions(kind: str) -> None:
    """On a grid that is not square: biases, tokens, logits and gradients, of all patches and of some."""
    recorded = load_file(FIXTURES / f"relpos_{kind}.safetensors")
    options: dict[str, Any] = {
        **SIZES, "img_size": (16, 24), "init_values": 0.5, "num_classes": 5, "fc_norm": True, "global_pool": "avg",
        "qkv_bias": kind == "bias_cls", "class_token": kind == "bias_cls", "rel_pos_type": kind.partition("_")[0],
        "rel_pos_dim": 16,
    }  # fmt: skip
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # coordinates are rounded otherwise
    try:
        net = VisionTransformerRelPos(**options)
    finally:
        torch.set_default_dtype(before)
    net.pretrained_cfg = {"input_size": (3, 16, 24), "classifier": "head"}
    net.load_state_dict({k.removeprefix("state."): v for k, v in recorded.items() if k.startswith("state.")})
    backbone = Recorded(net, "relpos", {}, 16).eval()
    for i, bias in enumerate(backbone._biases(backbone.built, None)):
        torch.testing.assert_close(bias, recorded[f"bias.{i}"], **EXACT)
    for part in ("", "dropped."):
        net.zero_grad()
        images = recorded["images"].clone().requires_grad_()
        tokens = backbone.forward_tokens(images, keep_ids=recorded["keep"] if part else None, norm=False)
        torch.testing.assert_close(all_of(tokens), recorded[f"{part}tokens"], **EXACT)
        pooled = net.fc_norm(tokens.patches.mean(dim=1))
        torch.testing.assert_close(pooled, recorded[f"{part}pooled"], **EXACT)
        logits = net.head(pooled)
        torch.testing.assert_close(logits, recorded[f"{part}logits"], **EXACT)
        (logits * recorded["probe.logits"]).sum().backward()
        torch.testing.assert_close(images.grad, recorded[f"{part}grad.images"], **EXACT)
        start = f"{part}grad."
        for name in [k.removeprefix(start) for k in recorded if k.startswith(start) and not k.endswith(".images")]:
            torch.testing.assert_close(net.get_parameter(name).grad, recorded[f"{part}grad.{name}"], **EXACT)


def test_loss_of_beit() -> None:
    """Mask token, logits, loss and gradients; the images hide different numbers of patches here."""
    recorded = load_file(FIXTURES / "beit_mim.safetensors")
    lm = {k: v for k, v in recorded.items() if not k.startswith("state.layernorm")}
    lm |= {
        k.replace("layernorm", "pooler.layernorm"): v for k, v in recorded.items() if k.startswith("state.layernorm")
    }
    backbone = beit(lm, use_shared_rel_pos_bias=True)
    objective = BEiT(backbone, ResolvedBEiT(0.4, 32, False)).double()
    with torch.no_grad():
        objective.mask_token.copy_(recorded["state.beit.embeddings.mask_token"][0, 0])
        objective.head.weight.copy_(recorded["state.lm_head.weight"])
        objective.head.bias.copy_(recorded["state.lm_head.bias"])
    images, hidden = recorded["images"].requires_grad_(), recorded["bool_masked_pos"]
    logits = objective.head(objective.encode(images, hidden).patches)
    torch.testing.assert_close(logits, recorded["logits"], **EXACT)
    loss = word_loss(logits[hidden], recorded["visual_tokens"][hidden])
    torch.testing.assert_close(loss, recorded["loss"], **EXACT)
    loss.backward()
    torch.testing.assert_close(images.grad, recorded["grad.images"], **EXACT)
    torch.testing.assert_close(objective.mask_token.grad, recorded["grad.beit.embeddings.mask_token"][0, 0], **EXACT)
    torch.testing.assert_close(objective.head.weight.grad, recorded["grad.lm_head.weight"], **EXACT)
    for name in (
        "embeddings.patch_embeddings.projection.weight", "layers.0.attention.q_proj.weight",
        "shared_position_bias.relative_position_bias_table",
    ):  # fmt: skip
        torch.testing.assert_close(gradient_of(backbone, name), recorded[f"grad.beit.{name}"], **EXACT)
