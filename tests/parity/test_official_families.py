"""Networks that timm does not know, against tensors recorded from their authors' code: outputs and gradients."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ssl_vit.families  # noqa: F401  (registers them)
import timm
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from ssl_vit.configs import ModelConfig, networks
from ssl_vit.data.scale import PixelScale
from ssl_vit.exports.timm_folder import export_backbone
from ssl_vit.models.build import build_backbone, model_facts
from ssl_vit.models.families import dat
from ssl_vit.models.families.cct import CompactTransformer
from ssl_vit.models.families.cvt import ConvolutionalTransformer
from ssl_vit.models.families.dat import (
    DeformableAttention,
    DeformableTransformer,
    WindowAttention,
    relative_index,
    seams,
)
from ssl_vit.models.families.pvt import PyramidTransformer
from ssl_vit.models.families.t2t import TokensToTokenViT
from torch import Tensor, nn
from torch.testing import assert_close

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.mark.parametrize(
    ("name", "classes", "count"),
    [
        ("cct_7_3x1_32", 10, 3_760_139),
        ("cct_14_7x2_224", 1000, 22_367_273),
        ("pvt_tiny", 1000, 13_229_288),
        ("cvt_13", 1000, 19_997_480),
        ("t2t_vit_7", 1000, 4_255_694),
        ("t2t_vit_14", 1000, 21_465_806),
        ("t2t_vit_t_14", 1000, 21_465_422),
        ("dat_tiny", 1000, 28_319_138),
        ("dat_small", 1000, 49_700_402),
    ],
)
def test_parameters_of_published_sizes(name: str, classes: int, count: int) -> None:
    """Those that are trained: T2T's positions and random directions are not."""
    with torch.device("meta"):
        model = timm.create_model(name, num_classes=classes)
    assert sum(p.numel() for p in model.parameters()) == count


def _cct_name(key: str) -> str:
    """Ours, for a name of the authors'."""
    if key.startswith("tokenizer.conv_layers."):
        _, _, layer, _, kind = key.split(".")
        return f"tokenizer.{3 * int(layer)}.{kind}"
    for theirs, ours in (
        ("classifier.", ""), ("norm1", "norm2"), ("pre_norm", "norm1"), ("self_attn", "attn"), ("linear1", "mlp.fc1"),
        ("linear2", "mlp.fc2"), ("attention_pool", "attn_pool"), ("positional_emb", "pos_embed"),
    ):  # fmt: skip
        key = key.replace(theirs, ours)
    return key.replace("fc.", "head.") if key.startswith("fc.") else key


@pytest.mark.parametrize(("layers", "size"), [(1, 16), (2, 24)])
@pytest.mark.parametrize("positions", ["learnable", "sine"])
def test_cct(layers: int, size: int, positions: str) -> None:
    recorded = load_file(FIXTURES / f"cct_conv{layers}.safetensors")
    model = CompactTransformer(size, 3, 5, embed_dim=16, depth=2, num_heads=2, conv_layers=layers).double()
    state = {k.removeprefix("state."): v for k, v in recorded.items() if k.startswith("state.")}
    if positions == "sine":
        state["classifier.positional_emb"] = recorded["sine.positional_emb"]
    model.load_state_dict({_cct_name(k): v for k, v in state.items()})
    images = recorded["images"].requires_grad_()
    tokens = model.forward_features(images)
    logits = model.forward_head(tokens)
    (logits * recorded["probe.logits"]).sum().backward()
    found: dict[str, Tensor | None] = {
        "tokens": tokens, "pooled": model.forward_head(tokens, pre_logits=True), "logits": logits,
        "grad.images": images.grad,
        **{f"grad.{k}": model.get_parameter(_cct_name(k)).grad for k in state},
    }  # fmt: skip
    expected = {k.removeprefix(f"{positions}."): v for k, v in recorded.items() if k.startswith(f"{positions}.")}
    for key in expected.keys() - {"positional_emb"}:
        assert_close(found[key], expected[key], rtol=0, atol=1e-9, msg=key)


def _renamed(key: str, names: tuple[tuple[str, str], ...]) -> str:
    for theirs, ours in names:
        key = re.sub(theirs, ours, key)
    return key


def _pvt_name(key: str) -> str:
    return _renamed(
        key,
        (
            (r"^pvt\.encoder\.", ""), (r"^patch_embeddings\.(\d)\.", r"stages.\1."), (r"\.projection\.", ".proj."),
            (r"^block\.(\d)\.(\d)\.", r"stages.\1.blocks.\2."), (r"attention\.self\.query", "attn.q"),
            (r"attention\.self\.sequence_reduction", "attn.sr"), (r"attention\.self\.layer_norm", "attn.norm"),
            (r"attention\.output\.dense", "attn.proj"), (r"layer_norm_(\d)", r"norm\1"), (r"mlp\.dense", "mlp.fc"),
            (r"layer_norm", "norm"), (r"position_embeddings", "pos_embed"), (r"^classifier", "head"),
        ),
    )  # fmt: skip


@pytest.mark.parametrize("eps", [1e-5, 1e-6])
def test_pvt(eps: float) -> None:
    """With the authors' eps of patches and reduced maps, and with that of transformers."""
    recorded = load_file(FIXTURES / "pvt.safetensors")
    model = PyramidTransformer(
        64, 1, 5, (4, 8, 12, 16), (1, 2, 1, 1), (1, 2, 3, 2), mlp_ratios=(4, 4, 2, 2)
    ).double()  # fmt: skip
    for part in model.modules():
        if isinstance(part, nn.LayerNorm) and part.eps == 1e-5:
            part.eps = eps
    state = {k.removeprefix("state."): v for k, v in recorded.items() if k.startswith("state.")}
    for key in [k for k in state if ".self.key." in k]:
        state[key.replace(".key.", ".kv.")] = torch.cat([state.pop(key), state.pop(key.replace(".key.", ".value."))])
    names = {k: _pvt_name(k.replace("attention.self.kv", "attn.kv")) for k in state}
    model.load_state_dict({names[k]: v for k, v in state.items()})
    images = recorded["images"].requires_grad_()
    tokens = model.forward_features(images)
    logits = model.forward_head(tokens)
    (logits * recorded["probe.logits"]).sum().backward()
    if eps == 1e-5:
        assert_close(logits, recorded["official.logits"], rtol=0, atol=1e-9)
        assert_close(images.grad, recorded["official.grad.images"], rtol=0, atol=1e-9)
        return
    for found, name in ((tokens, "tokens"), (tokens[:, 0], "pooled"), (logits, "logits"), (images.grad, "grad.images")):
        assert_close(found, recorded[name], rtol=0, atol=1e-9, msg=name)
    for key, expected in recorded.items():
        if key.startswith("grad.") and key != "grad.images":
            gradient = model.get_parameter(names[key[5:].replace(".value.", ".kv.").replace(".key.", ".kv.")]).grad
            if ".value." in key:  # the lower half
                assert gradient is not None
                gradient = gradient[len(expected) :]
            assert_close(gradient, expected, rtol=0, atol=1e-9, msg=key)


def _cvt_name(key: str) -> str:
    return _renamed(
        key,
        (
            (r"^cvt\.encoder\.", ""), (r"embedding\.convolution_embeddings\.", ""), (r"\.layers\.", ".blocks."),
            (r"attention\.attention\.convolution_projection_(\w)\w+\.convolution_projection\.", r"\1."),
            (r"attention\.attention\.projection_(\w)\w+\.", r"\1.linear."), (r"attention\.output\.dense", "proj"),
            (r"\.intermediate\.dense", ".mlp.fc1"), (r"\.output\.dense", ".mlp.fc2"), (r"\.convolution\.", ".conv."),
            (r"(blocks.*)\.normalization", r"\1.bn"), (r"normalization", "norm"), (r"projection\.", "proj."),
            (r"layernorm_before", "norm1"), (r"layernorm_after", "norm2"), (r"^layernorm", "norm"),
            (r"^classifier", "head"),
        ),
    )  # fmt: skip


@pytest.mark.parametrize("act", ["gelu", "quick_gelu"])
def test_cvt(act: str) -> None:
    """With GELU, as transformers has it, and with QuickGELU, as the authors have it."""
    recorded = load_file(FIXTURES / "cvt.safetensors")
    model = ConvolutionalTransformer(3, 5, (8, 12, 16), (1, 2, 3), (1, 2, 4), act=act).double().eval()
    state = {k.removeprefix("state."): v for k, v in recorded.items() if k.startswith("state.")}
    model.load_state_dict({_cvt_name(k): v for k, v in state.items()})
    images, last = recorded["images"].requires_grad_(), list[Tensor]()
    model.norm.register_forward_pre_hook(lambda _, given: last.append(given[0]))
    tokens = model.forward_features(images)
    logits = model.forward_head(tokens)
    (logits * recorded["probe.logits"]).sum().backward()
    if act == "quick_gelu":
        assert_close(logits, recorded["official_quickgelu.logits"], rtol=0, atol=1e-9)
        assert_close(images.grad, recorded["official_quickgelu.grad.images"], rtol=0, atol=1e-9)
        return
    pooled = model.forward_head(tokens, pre_logits=True)
    for found, name in ((pooled, "pooled"), (logits, "logits"), (images.grad, "grad.images")):
        assert_close(found, recorded[name], rtol=0, atol=1e-9, msg=name)
    assert_close(last[0][:, :1], recorded["cls_token"], rtol=0, atol=1e-9)
    assert_close(last[0][:, 1:].transpose(1, 2).unflatten(2, (2, 2)), recorded["map"], rtol=0, atol=1e-9)
    for key, expected in recorded.items():
        if key.startswith("grad.") and key != "grad.images":
            assert_close(model.get_parameter(_cvt_name(key[5:])).grad, expected, rtol=0, atol=1e-9, msg=key)


@pytest.mark.parametrize("kind", ["transformer", "performer"])
def test_t2t(kind: str) -> None:
    recorded = load_file(FIXTURES / f"t2t_{kind}.safetensors")
    model = TokensToTokenViT(32, 3, 5, 24, 2, 3, token_dim=8, tokens=kind).double()
    names = (
        (r"attention(\d)\.attn\.", r"attention\1."), (r"attention(\d)\.mlp\.0", r"attention\1.mlp.fc1"),
        (r"attention(\d)\.mlp\.2", r"attention\1.mlp.fc2"),
    )  # fmt: skip
    assert_close(model.pos_embed, recorded["state.pos_embed"], rtol=0, atol=1e-6)  # recorded in single precision
    state = {k.removeprefix("state."): v for k, v in recorded.items() if k.startswith("state.")}
    model.load_state_dict({_renamed(k, names): v for k, v in state.items()})
    images, first = recorded["images"].requires_grad_(), list[Tensor]()
    model.tokens_to_token.attention1.register_forward_hook(lambda _, __, out: first.append(out))
    assert_close(model.tokens_to_token(images)[0], recorded["t2t"], rtol=0, atol=1e-9)
    assert_close(first[0], recorded["stage1"], rtol=0, atol=1e-9)
    tokens = model.forward_features(images)
    logits = model.forward_head(tokens)
    (logits * recorded["probe.logits"]).sum().backward()
    for found, name in ((tokens, "tokens"), (tokens[:, 0], "pooled"), (logits, "logits"), (images.grad, "grad.images")):
        assert_close(found, recorded[name], rtol=0, atol=1e-9, msg=name)
    for key, expected in recorded.items():
        if key.startswith("grad.") and key != "grad.images":
            assert_close(model.get_parameter(_renamed(key[5:], names)).grad, expected, rtol=0, atol=1e-9, msg=key)


def _dat_name(key: str) -> str:
    key = re.sub(r"layer_norms\.(\d+)\.norm", lambda m: f"{int(m[1]) // 2}.norm{int(m[1]) % 2 + 1}", key)
    return _renamed(
        key,
        (
            (r"^patch_proj", "stem"), (r"^down_projs", "downs"), (r"attns\.(\d+)\.", r"\1.attn."), (r"proj_qkv", "qkv"),
            (r"mlps\.(\d+)\.chunk\.linear", r"\1.fc"), (r"\.norm\.", "."), (r"^cls_head", "head"),
            (r"^cls_norm", "norm"),
        ),
    )  # fmt: skip


@pytest.fixture
def read_at(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Where maps are read, (y, x), call by call: the map itself, then the table of biases."""
    found, plain = list[Tensor](), F.grid_sample

    def told(map: Tensor, grid: Tensor, **more: Any) -> Tensor:
        found.append(grid.flip(3).detach())
        return plain(map, grid, **more)

    monkeypatch.setattr(F, "grid_sample", told)
    return found


@pytest.mark.parametrize("zero", ["", "zero."])
def test_dat(zero: str, read_at: list[Tensor]) -> None:
    """Whole networks, also with offsets of 0, which is not the identity."""
    recorded = load_file(FIXTURES / "dat.safetensors")
    model = DeformableTransformer(
        32, 3, 5, 2, 4, ("LS", "L", "LD", "D"), (1, 2, 4, 8), (4, 4, 4, 2), (1, 1, 2, 4), mlp_ratio=2
    ).double()  # fmt: skip
    state = {k.removeprefix("state."): v for k, v in recorded.items() if k.startswith("state.")}
    names = dict[str, str]()
    for key in state:
        found = _dat_name(key)
        windowed = (
            isinstance(model.get_submodule(found.rpartition(".attn.")[0] + ".attn"), WindowAttention)
            if ".attn." in found
            else False
        )
        names[key] = found.replace("proj_out", "proj") if windowed else found
    for key, value in state.items():
        if key.endswith("relative_position_index"):
            assert torch.equal(value, relative_index(*[4 if len(value) == 16 else 2] * 2, value.device))
        elif key.endswith("attn_mask"):
            assert torch.equal(value, seams(16, 16, 4, 2, value.device).to(value))
    buffers = ("relative_position_index", "attn_mask")
    model.load_state_dict({names[k]: v for k, v in state.items() if not k.endswith(buffers)})
    if zero:
        for part in model.modules():
            if isinstance(part, DeformableAttention):
                nn.init.zeros_(part.conv_offset[3].weight)
    images = recorded["images"].requires_grad_()
    features = model.forward_features(images)
    logits = model.forward_head(features)
    (logits * recorded["probe.logits"]).sum().backward()
    pooled = model.forward_head(features, pre_logits=True)
    for found, name in ((features, "map"), (pooled, "pooled"), (logits, "logits"), (images.grad, "grad.images")):
        assert_close(found, recorded[zero + name], rtol=0, atol=1e-9, msg=name)
    for stage, places in zip((2, 3), read_at[::2], strict=True):  # of two attentions
        expected, reference = recorded[f"{zero}positions.{stage}"], recorded[f"references.{stage}"]
        assert_close(places.reshape(expected.shape), expected, rtol=0, atol=1e-9)
        middles = dat._middles(*expected.shape[2:4], expected).expand(reference.shape)
        assert_close(middles, reference, rtol=0, atol=1e-9)
    for key, expected in recorded.items():
        if key.startswith(f"{zero}grad.") and not key.endswith("images"):
            name = names[key.removeprefix(f"{zero}grad.")]
            assert_close(model.get_parameter(name).grad, expected, rtol=0, atol=1e-9, msg=key)


def test_deformable_attention_alone(read_at: list[Tensor]) -> None:
    recorded = load_file(FIXTURES / "dat_attention.safetensors")
    for zero in ("", "zero."):
        read_at.clear()
        model = DeformableAttention(12, 4, 2, 6, 5, 2).double()
        model.rpe_table = nn.Parameter(torch.zeros(4, 11, 15, dtype=torch.float64))
        state = {k.removeprefix("v1.state."): v for k, v in recorded.items() if k.startswith("v1.state.")}
        model.load_state_dict({k.replace(".norm.", "."): v for k, v in state.items()})
        if zero:
            nn.init.zeros_(model.conv_offset[3].weight)
        x = recorded["x"].clone().requires_grad_()
        y = model(x)
        (y * recorded["probe.y"]).sum().backward()
        assert_close(y, recorded[f"v1.{zero}y"], rtol=0, atol=1e-9)
        assert_close(x.grad, recorded[f"v1.{zero}grad.x"], rtol=0, atol=1e-9)
        expected = recorded[f"v1.{zero}pos"]
        assert_close(read_at[0].reshape(expected.shape), expected, rtol=0, atol=1e-9)
        for key, expected in recorded.items():
            if key.startswith(f"v1.{zero}grad.") and not key.endswith(".x"):
                name = key.removeprefix(f"v1.{zero}grad.").replace(".norm.", ".")
                assert_close(model.get_parameter(name).grad, expected, rtol=0, atol=1e-9, msg=key)


def test_plain_timm_needs_one_import_for_an_export_and_the_export_says_so(tmp_path: Path) -> None:
    torch.manual_seed(0)
    asked = ModelConfig("cct_micro")
    cfg = networks.resolve_model(asked, 32, model_facts(*networks.wanted(asked, 32)))
    backbone = build_backbone(cfg, 3).eval()
    export_backbone(backbone, tmp_path / "b", PixelScale((0.5,) * 3, (0.2,) * 3, 8), "mean", {})
    said = json.loads((tmp_path / "b" / "config.json").read_text())["ssl_vit"]["import"]
    images = torch.randn(2, 3, 32, 32)
    torch.save((images, backbone.forward_pooled(images, pool="mean").detach()), tmp_path / "expected.pt")
    code = f"""
import timm, torch
from pathlib import Path
place = Path({str(tmp_path)!r})
try:
    timm.create_model(f"local-dir:{{place / 'b'}}", pretrained=True)
except RuntimeError as error:
    assert "Unknown model" in str(error), error
else:
    raise AssertionError("timm knew it")
import {said}
images, expected = torch.load(place / "expected.pt")
found = timm.create_model(f"local-dir:{{place / 'b'}}", pretrained=True).eval()(images)
torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
