"""What every backbone promises, and the equations of ViT written by hand."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest
import timm
import torch
import torch.nn.functional as F
from ssl_vit.configs import ModelConfig, ResolvedModel
from ssl_vit.core.errors import UserError
from ssl_vit.evaluation.features import candidate_pools
from ssl_vit.methods import METHODS
from ssl_vit.models.backbone import Replace
from ssl_vit.models.build import build_backbone, check_shape, make_backbone, model_facts, timm_args
from ssl_vit.models.pooled import PooledBackbone
from ssl_vit.models.positions import resample
from ssl_vit.models.vit import ViTBackbone, gather_patches, patchify
from torch import Tensor

SHAPES = {
    "digits": ResolvedModel("vit_tiny_patch16_224", 8, 2, 64, 4, 4, "sincos", "mean"),
    "cifar": ResolvedModel("vit_tiny_patch16_224", 32, 4, 48, 3, 3, "learnable", "cls"),
    "registers": ResolvedModel("vit_small_patch16_224", 24, 4, 32, 2, 2, "learnable", "cls"),
    "84px": ResolvedModel("vit_tiny_patch16_224", 84, 12, 128, 1, 4, "sincos", "cls"),
    "factorised": ResolvedModel("vit_tiny_patch16_224", 20, 4, 36, 2, 3, "factorised", "cls"),
    "none": ResolvedModel("vit_tiny_patch16_224", 20, 4, 36, 2, 3, "none", "cls"),
}


def make(name: str, channels: int = 3) -> ViTBackbone:
    torch.manual_seed(0)
    if name == "registers":
        args = {
            "img_size": 24, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 2, "reg_tokens": 3,
            "in_chans": channels, "no_embed_class": True,
        }  # fmt: skip
        vit = timm.create_model("vit_small_patch16_224", num_classes=0, **args)
        backbone = ViTBackbone(vit, "vit_small_patch16_224", args)
    else:
        backbone = build_backbone(SHAPES[name], channels)
    # Nothing may stay at a value (zero biases, unit norms) that would hide a missing term.
    for parameter in backbone.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return backbone.double().eval()


def pixels(backbone: ViTBackbone, batch: int = 3, side: int = 0) -> Tensor:
    side = side or backbone.grid[0] * backbone.patch_size
    return torch.randn(batch, backbone.channels, side, side, dtype=torch.float64)


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("name", SHAPES)
def test_visible_patches_alone_equal_embedding_all_and_gathering(name: str, channels: int) -> None:
    backbone = make(name, channels)
    images = pixels(backbone)
    patches = backbone.grid[0] * backbone.grid[1]
    keep = torch.stack([torch.randperm(patches)[: patches // 4] for _ in images])
    visible, _ = backbone._embed(images, keep)
    everything, _ = backbone._embed(images, None)
    prefix = backbone.prefix_tokens
    assert (visible[:, prefix:] - gather_patches(everything[:, prefix:], keep)).abs().max() <= 1e-12
    assert (visible[:, :prefix] - everything[:, :prefix]).abs().max() == 0


@pytest.mark.parametrize("name", SHAPES)
def test_equals_timms_own_forward(name: str) -> None:
    backbone = make(name)
    images = pixels(backbone)
    tokens = backbone.forward_tokens(images)
    vit = timm.create_model(backbone.architecture, num_classes=0, **backbone.model_args).double().eval()
    vit.load_state_dict(backbone.timm_state())
    theirs = vit.forward_features(images)
    assert (torch.cat([tokens.prefix, tokens.patches], 1) - theirs).abs().max() <= 1e-12
    assert tokens.grid == backbone.grid


def test_equations_of_vit_by_hand() -> None:
    """Dosovitskiy et al. 2021, equations 1 to 4, term by term."""
    backbone = make("cifar")
    vit, images, heads = backbone.vit, pixels(backbone), 3
    p = {k: v.detach() for k, v in vit.state_dict().items()}
    width = p["cls_token"].shape[2]

    def norm(x: Tensor, name: str) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-6) * p[name + ".weight"] + p[name + ".bias"]

    # Equation 1: every patch times E, the class token in front, E_pos added to all.
    flat = []
    for top in range(0, 32, 4):
        for left in range(0, 32, 4):
            patch = images[:, :, top : top + 4, left : left + 4].reshape(len(images), -1)
            flat.append(patch @ p["patch_embed.proj.weight"].reshape(width, -1).T + p["patch_embed.proj.bias"])
    z = torch.cat([p["cls_token"].expand(len(images), -1, -1), torch.stack(flat, 1)], 1) + p["pos_embed"]
    for i in range(3):
        b = f"blocks.{i}."
        # Equation 2: multi-head self-attention behind LayerNorm, softmax(q k^T / sqrt(D_h)) v.
        qkv = norm(z, b + "norm1") @ p[b + "attn.qkv.weight"].T + p[b + "attn.qkv.bias"]
        q, k, v = qkv.split(width, dim=2)
        out = []
        for h in range(heads):
            part = slice(h * width // heads, (h + 1) * width // heads)
            a = torch.softmax(q[..., part] @ k[..., part].transpose(1, 2) / math.sqrt(width // heads), -1)
            assert torch.allclose(a.sum(-1), torch.ones_like(a[..., 0]))
            out.append(a @ v[..., part])
        z = z + torch.cat(out, 2) @ p[b + "attn.proj.weight"].T + p[b + "attn.proj.bias"]
        # Equation 3: MLP with exact GELU behind LayerNorm.
        hidden = norm(z, b + "norm2") @ p[b + "mlp.fc1.weight"].T + p[b + "mlp.fc1.bias"]
        hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
        z = z + hidden @ p[b + "mlp.fc2.weight"].T + p[b + "mlp.fc2.bias"]
    # Equation 4: y = LN(z_L^0).
    y = norm(z, "norm")
    assert (backbone.forward_pooled(images, pool="cls") - y[:, 0]).abs().max() <= 1e-12
    assert (backbone.forward_pooled(images, pool="mean") - y[:, 1:].mean(1)).abs().max() <= 1e-12
    assert (backbone.forward_pooled(images, pool="mean_prenorm") - z[:, 1:].mean(1)).abs().max() <= 1e-12


@pytest.mark.parametrize("name", SHAPES)
def test_pools_are_made_of_normed_class_tokens_and_patches(name: str) -> None:
    backbone = make(name)
    images, width = pixels(backbone), backbone.embed_dim
    x, _ = backbone._embed(images, None)
    layers = []
    for block in backbone.vit.blocks:
        x = block(x)
        layers.append(backbone.vit.norm(x)[:, 0])
    mean = backbone.vit.norm(x)[:, backbone.prefix_tokens :].mean(1)
    wanted = {
        "cls": layers[-1],
        "mean": mean,
        "cls4": torch.cat(layers[-4:], 1),
        "cls+mean": torch.cat([layers[-1], mean], 1),
        "cls4+mean": torch.cat([*layers[-4:], mean], 1),
    }
    for pool, value in wanted.items():
        found = backbone.forward_pooled(images, pool=pool)
        assert (found - value).abs().max() <= 1e-12, pool
        assert backbone.pooled_width(pool) == found.shape[1], pool
    # The last four of at least four blocks, all of fewer.
    assert backbone.pooled_width("cls4") == min(4, backbone.depth) * width


def test_one_extraction_holds_every_candidate_pool() -> None:
    backbone = make("digits")
    images = pixels(backbone)
    everything, pools = candidate_pools(backbone)
    rows = backbone.forward_pooled(images, pool=everything)
    assert list(pools) == ["cls", "mean", "cls4", "cls+mean"]
    for pool, columns in pools.items():
        assert torch.allclose(rows[:, columns], backbone.forward_pooled(images, pool=pool), atol=1e-5), pool


def test_a_network_without_class_token_has_the_mean_alone() -> None:
    vit = timm.create_model("vit_tiny_patch16_224", img_size=16, patch_size=4, embed_dim=8, depth=1, num_heads=2,
                            class_token=False, global_pool="avg", fc_norm=False, num_classes=0)  # fmt: skip
    backbone = ViTBackbone(vit, "vit_tiny_patch16_224", {"img_size": 16})
    assert candidate_pools(backbone) == ("mean", {"mean": slice(None)})
    assert backbone.forward_pooled(torch.zeros(2, 3, 16, 16), pool="mean").shape == (2, 8)
    with pytest.raises(ValueError, match="no class token"):
        backbone.forward_pooled(torch.zeros(2, 3, 16, 16), pool="cls4")
    with pytest.raises(ValueError, match="no class token"):
        backbone.attention(torch.zeros(2, 3, 16, 16))


def test_84_pixels_with_12_pixel_patches() -> None:
    backbone = make("84px")
    images = pixels(backbone, 2)
    assert patchify(images, 12).shape == (2, 49, 432)
    embedded, _ = backbone._embed(images, None)
    assert embedded.shape == (2, 50, 128)
    projection = backbone.vit.patch_embed.proj
    assert sum(p.numel() for p in projection.parameters()) == 55_424


def test_convolution_is_the_projection_of_flat_patches() -> None:
    backbone = make("cifar")
    images = pixels(backbone)
    proj = backbone.vit.patch_embed.proj
    by_matrix = F.linear(patchify(images, 4), proj.weight.flatten(1), proj.bias)
    assert (proj(images).flatten(2).transpose(1, 2) - by_matrix).abs().max() <= 1e-12


@pytest.mark.parametrize(
    ("name", "count", "classes"),
    [
        ("vit_tiny_patch16_224", 5_717_416, 1000),
        ("vit_small_patch16_224", 22_050_664, 1000),
        ("vit_base_patch16_224", 86_567_656, 1000),
        ("vit_large_patch16_224", 304_326_632, 1000),
        ("vit_huge_patch14_224", 630_764_800, 0),
    ],
)
def test_parameter_counts(name: str, count: int, classes: int) -> None:
    with torch.device("meta"):
        facts = model_facts(name)
        cfg = ResolvedModel(name, 224, facts.patch_size, facts.width, facts.depth, facts.heads, "learnable", "cls")
        backbone = build_backbone(cfg, 3)
    classifier = classes * facts.width + classes
    assert sum(p.numel() for p in backbone.parameters()) + classifier == count


@pytest.mark.parametrize("new", [(11, 5), (3, 9), (16, 8), (1, 40)])
def test_resampling_is_antialiased_bicubic_interpolation(new: tuple[int, int]) -> None:
    positions = torch.randn(1, 65, 12, dtype=torch.float64, requires_grad=True)
    with torch.inference_mode():
        resample(positions, (8, 8), new, prefix=1)  # what evaluation keeps must serve training too
    ours = resample(positions, (8, 8), new, prefix=1)[:, 1:]
    planes = positions[:, 1:].reshape(1, 8, 8, 12).permute(0, 3, 1, 2).contiguous()
    theirs = F.interpolate(planes, size=new, mode="bicubic", antialias=True).flatten(2).transpose(1, 2)
    assert (ours - theirs).abs().max() <= 1e-12
    weight = torch.randn_like(ours)
    grads = [torch.autograd.grad((x * weight).sum(), positions)[0] for x in (ours, theirs)]
    assert (grads[0] - grads[1]).abs().max() <= 1e-12
    single = positions.detach().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (resample(single, (8, 8), new, prefix=1)[:, 1:] - theirs).abs().max() <= 1e-5


def test_resampling_is_the_identity_at_the_same_size_and_keeps_the_class_row() -> None:
    positions = torch.randn(1, 65, 12, dtype=torch.float64)
    assert resample(positions, (8, 8), (8, 8), prefix=1) is positions
    larger = resample(positions, (8, 8), (11, 5), prefix=1)
    assert larger.shape == (1, 56, 12)
    assert torch.equal(larger[:, 0], positions[:, 0])
    constant = resample(torch.full((1, 65, 4), 0.3), (8, 8), (13, 13), prefix=1)
    assert torch.allclose(constant, torch.full_like(constant, 0.3), atol=1e-6)


@pytest.mark.parametrize("name", ["digits", "cifar", "registers", "factorised", "none"])
def test_other_resolution(name: str) -> None:
    backbone = make(name)
    patch = backbone.patch_size
    rows, columns = backbone.grid
    images = torch.randn(2, 3, (rows + 2) * patch, (columns - 1) * patch, dtype=torch.float64)
    tokens = backbone.forward_tokens(images)
    assert tokens.grid == (rows + 2, columns - 1)
    assert tokens.patches.shape == (2, (rows + 2) * (columns - 1), backbone.embed_dim)
    with pytest.raises(ValueError, match="patch size"):
        backbone.forward_tokens(images[:, :, :-1])


@pytest.mark.parametrize("name", SHAPES)
def test_feature_map_is_the_patch_tokens_on_their_grid(name: str) -> None:
    backbone = make(name)
    patch = backbone.patch_size
    rows, columns = backbone.grid[0] + 1, backbone.grid[1] - 1
    images = torch.randn(2, 3, rows * patch, columns * patch, dtype=torch.float64)
    tokens = backbone.forward_tokens(images).patches
    found = backbone.feature_map(images)
    assert found.shape == (2, backbone.embed_dim, rows, columns)
    for row, column in ((0, 0), (rows - 1, 0), (1, columns - 1)):
        assert torch.equal(found[:, :, row, column], tokens[:, row * columns + column])


def normed_qk() -> ViTBackbone:
    args = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3, "qk_norm": True}
    backbone = make_backbone("vit_tiny_patch16_224", args)
    for parameter in backbone.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return backbone.double().eval()


@pytest.mark.parametrize("name", ["cifar", "registers", "none", "normed queries and keys"])
@pytest.mark.parametrize("more", [0, 2])
def test_attention_is_the_softmax_by_hand(name: str, more: int) -> None:
    backbone = normed_qk() if name == "normed queries and keys" else make(name)
    images = pixels(backbone, side=(backbone.grid[0] + more) * backbone.patch_size)
    tokens, _ = backbone._embed(images, None)
    for block in backbone.vit.blocks[:-1]:
        tokens = block(tokens)
    p = {k.removeprefix(f"blocks.{backbone.depth - 1}."): v for k, v in backbone.vit.state_dict().items()}

    def norm(x: Tensor, layer: str) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], p[layer + ".weight"], p[layer + ".bias"], eps=1e-6)

    query, key, _ = (norm(tokens, "norm1") @ p["attn.qkv.weight"].T + p["attn.qkv.bias"]).chunk(3, dim=2)
    heads = backbone.vit.blocks[-1].attn.num_heads  # pyright: ignore[reportAttributeAccessIssue]
    size = backbone.embed_dim // heads
    found = backbone.attention(images)
    patches = (backbone.grid[0] + more) ** 2
    assert found.shape == (len(images), heads, patches)
    for h in range(heads):
        q, k = (x[:, :, h * size : (h + 1) * size] for x in (query, key))
        if "attn.q_norm.weight" in p:
            q, k = norm(q, "attn.q_norm"), norm(k, "attn.k_norm")
        logits = (q[:, :1] @ k.transpose(1, 2))[:, 0] / math.sqrt(size)
        by_hand = logits.exp() / logits.exp().sum(dim=1, keepdim=True)
        prefix = by_hand[:, : backbone.prefix_tokens].sum(dim=1)
        assert (found[:, h] - by_hand[:, backbone.prefix_tokens :]).abs().max() <= 1e-12
        assert (found[:, h].sum(dim=1) + prefix - 1).abs().max() <= 1e-12
        assert (prefix > 1e-6).all()


@pytest.mark.parametrize("name", SHAPES)
def test_attentions_of_every_block(name: str) -> None:
    backbone = make(name)
    images = pixels(backbone)
    found = backbone.attentions(images)
    tokens = backbone.prefix_tokens + backbone.grid[0] * backbone.grid[1]
    assert len(found) == backbone.depth
    for rows in found:
        assert rows.shape[0] == len(images) and rows.shape[2:] == (tokens, tokens)
        assert (rows.sum(dim=3) - 1).abs().max() <= 1e-12
    last = found[-1][:, :, 0, backbone.prefix_tokens :]
    assert (backbone.attention(images) - last).abs().max() <= 1e-12


@pytest.mark.parametrize("name", SHAPES)
def test_replaced_patches(name: str) -> None:
    backbone = make(name)
    images, count = pixels(backbone), backbone.grid[0] * backbone.grid[1]
    projection, size = backbone.vit.patch_embed.proj, backbone.patch_size
    everywhere = torch.ones(len(images), count, dtype=torch.bool)
    own = F.linear(patchify(images, size), projection.weight.flatten(1), projection.bias)
    plain = backbone.forward_tokens(images)
    same = backbone.forward_tokens(images, replace=Replace(everywhere, own))
    assert (same.patches - plain.patches).abs().max() <= 1e-12
    assert (same.prefix - plain.prefix).abs().max() <= 1e-12
    # Some hidden by one token: what they show has no influence on any output, and what the others show has.
    hidden = torch.rand(everywhere.shape) < 0.5
    hidden[:, 0], hidden[:, 1] = True, False
    token = torch.randn(backbone.embed_dim, dtype=torch.float64, requires_grad=True)
    images.requires_grad_(True)
    found = backbone.forward_tokens(images, replace=Replace(hidden, token))
    into, into_token = torch.autograd.grad((found.patches**3).sum() + (found.prefix**3).sum(), [images, token])
    reached = patchify(into, size).abs().amax(dim=2)
    assert (reached[hidden] == 0).all()
    assert (reached[~hidden] > 0).all()
    assert (into_token != 0).all()
    # Beside dropping: those that are kept are the same tokens, with the same ones hidden among them.
    keep = torch.arange(count).expand(len(images), -1)
    kept = backbone.forward_tokens(images, keep_ids=keep, replace=Replace(hidden, token))
    assert (kept.patches - found.patches).abs().max() <= 1e-12


def test_tokens_after_every_block_are_those_of_timms_blocks() -> None:
    backbone = make("cifar")
    images = pixels(backbone, 2)
    found = backbone.after_blocks(images)
    given, _ = backbone._embed(images, None)
    for block, after in zip(backbone.vit.blocks, found, strict=True):
        torch.testing.assert_close(after, block(given), rtol=1e-12, atol=1e-12)
        given = after
    whole = backbone.forward_tokens(images, norm=False)
    assert torch.equal(found[-1], torch.cat([whole.prefix, whole.patches], dim=1))


def test_attention_is_what_the_block_mixes_values_with() -> None:
    """Values that are zero but for one patch show that patch's weight in the block's own output."""
    backbone = make("cifar")
    images, wanted = pixels(backbone, 2), 11
    attn: Any = backbone.vit.blocks[-1].attn
    seen: list[Tensor] = []
    cast(Any, backbone.vit.blocks[-1]).norm1.register_forward_hook(lambda module, given, out: seen.append(out))
    backbone.forward_tokens(images)
    found = backbone.attention(images)
    width, heads = backbone.embed_dim, attn.num_heads
    with torch.no_grad():
        attn.qkv.bias[2 * width :] = 0.0
        attn.qkv.weight[2 * width :] = 0.0
        attn.proj.weight.copy_(torch.eye(width, dtype=torch.float64))
        attn.proj.bias.zero_()
    plain = attn.qkv.forward

    def with_one_value(x: Tensor) -> Tensor:
        qkv = plain(x).clone()
        qkv[:, 1 + wanted, 2 * width :] = 1.0
        return qkv

    attn.qkv.forward = with_one_value
    mixed = attn(seen[0])[:, 0].unflatten(1, (heads, -1))
    assert (mixed - found[:, :, wanted, None]).abs().max() <= 1e-12


@pytest.mark.parametrize("name", SHAPES)
def test_stochastic_depth_factors(name: str) -> None:
    backbone = make(name)
    images = pixels(backbone, 2)
    ones = torch.ones(2, backbone.depth, 2, dtype=torch.float64)
    plain = backbone.forward_pooled(images, pool="mean")
    assert (backbone.forward_pooled(images, pool="mean", drop=ones) - plain).abs().max() <= 1e-12
    # With every branch dropped for the second sample only, its patches are the embedded ones.
    ones[1] = 0.0
    dropped = backbone.forward_tokens(images, drop=ones, norm=False)
    embedded, _ = backbone._embed(images, None)
    assert (dropped.patches[1] - embedded[1, backbone.prefix_tokens :]).abs().max() <= 1e-12
    assert (dropped.patches[0] - embedded[0, backbone.prefix_tokens :]).abs().max() > 1e-3


@pytest.mark.parametrize("name", SHAPES)
def test_every_parameter_has_a_layer(name: str) -> None:
    backbone = make(name)
    layers = {n: backbone.layer_id(n) for n, _ in backbone.named_parameters()}
    assert set(layers.values()) == set(range(backbone.depth + 2))
    assert {n for n, i in layers.items() if i == backbone.depth + 1} == {"vit.norm.weight", "vit.norm.bias"}
    assert all(i == 0 for n, i in layers.items() if "embed" in n or "token" in n)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("resnet18", "ResNet"),
        ("swin_tiny_patch4_window7_224", "SwinTransformer"),
        ("vit_small_r26_s32_224", "its stem, a HybridEmbed, looks beyond each patch"),
    ],
)
def test_where_patches_are_hidden_other_families_are_refused_with_the_reason(name: str, reason: str) -> None:
    able = ", ".join(method for method, entry in METHODS.items() if entry.needs != "dropping")
    refused = f"--model.name {name} does not go with a method that leaves out or replaces patches: .*{reason}"
    words = rf"{refused}.*It goes with {able} and training on labels \(supervised, taught, finetune\);"
    with pytest.raises(UserError, match=words):
        model_facts(name, needs="dropping")


POOLED = {
    "resnet18": (32, 64),
    "test_convnext": (32, 48),
    "mobilevit_xxs": (32, 64),
    "pvt_v2_b0": (64, 96),
    "swin_tiny_patch4_window7_224": (64, 32),
}
"""Models that give one vector, and two sizes for each."""
NARROW = {"swin_tiny_patch4_window7_224": {"embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4)}}


def make_pooled(name: str, channels: int = 3) -> PooledBackbone:
    torch.manual_seed(0)
    args = timm_args(ResolvedModel(name, POOLED[name][0], pool="mean"), channels) | NARROW.get(name, {})
    backbone = make_backbone(name, args, img_size=POOLED[name][0])
    assert isinstance(backbone, PooledBackbone)
    return backbone.double()


@pytest.mark.parametrize("name", POOLED)
def test_a_pooled_feature_is_timms_own_at_every_size(name: str) -> None:
    backbone = make_pooled(name, 2).eval()
    model = timm.create_model(name, num_classes=0, **backbone.model_args).double().eval()
    model.load_state_dict(backbone.timm_state())
    for size in POOLED[name]:
        images = torch.randn(2, 2, size, size, dtype=torch.float64)
        found = backbone.forward_pooled(images, pool="mean")
        assert found.shape == (2, backbone.embed_dim) == (2, backbone.pooled_width("mean"))
        assert (found - model(images)).abs().max() <= 1e-12
    with pytest.raises(ValueError, match="only one pooled feature"):
        backbone.forward_pooled(images, pool="cls")


@pytest.mark.parametrize("name", POOLED)
def test_training_a_pooled_feature_draws_nothing_and_reaches_every_parameter(name: str) -> None:
    backbone = make_pooled(name).train()
    images = torch.randn(4, 3, POOLED[name][0], POOLED[name][0], dtype=torch.float64)
    state = torch.get_rng_state()
    first, second = (backbone.forward_pooled(images, pool="mean") for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), state)
    (first * torch.randn_like(first)).sum().backward()
    assert all(p.grad is not None for p in backbone.parameters())  # DDP refuses others


@pytest.mark.parametrize("name", POOLED)
def test_layers_of_a_pooled_backbone(name: str) -> None:
    backbone = make_pooled(name)
    layers = {n: backbone.layer_id(n) for n, _ in backbone.named_parameters()}
    assert set(range(backbone.depth + 1)) <= set(layers.values()) <= set(range(backbone.depth + 2))
    assert layers[next(iter(layers))] == 0
    if name == "resnet18":
        last = "model.layer4.1.conv2.weight"
        assert (layers["model.conv1.weight"], layers["model.layer1.0.conv1.weight"], layers[last]) == (0, 1, 8)


@pytest.mark.parametrize("name", [*POOLED, *SHAPES])
def test_a_feature_map_has_a_vector_for_every_place(name: str) -> None:
    backbone = make_pooled(name).eval() if name in POOLED else make(name)
    size = backbone.img_size
    images = torch.randn(2, 3, size, size, dtype=torch.float64)
    found = backbone.feature_map(images)
    assert found.shape[:2] == (2, backbone.embed_dim)
    assert found.shape[2] == found.shape[3] > 1 or size == 32
    pooled = backbone.forward_pooled(images, pool="mean")
    if name != "test_convnext":  # a norm follows its mean
        assert (found.mean(dim=(2, 3)) - pooled).abs().max() <= 1e-12
    # Places are rows and columns of the image: what the right half shows changes the right half most.
    images[:, :, :, size // 2 :] += torch.randn_like(images[:, :, :, size // 2 :])
    change = (backbone.feature_map(images) - found).abs().mean(dim=(0, 1, 2))
    assert len(change) == 1 or change[-1] > change[0]


def test_unknown_names_get_close_matches() -> None:
    with pytest.raises(UserError, match="did you mean vit_small_patch16_224"):
        model_facts("vit_smal_patch16_224")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"img_size": 30}, "28 or 32"),
        ({"heads": 5}, "--model.heads 5"),
        ({"width": 66, "heads": 6, "positions": "sincos"}, "multiple of 4"),
        ({"width": 63, "heads": 3, "positions": "factorised"}, "even --model.width"),
    ],
)
def test_sizes_that_do_not_divide(changes: dict[str, Any], words: str) -> None:
    values: dict[str, Any] = {"img_size": 32, "patch_size": 4, "width": 64, "depth": 1, "heads": 4} | changes
    with pytest.raises(UserError, match=words):
        check_shape(ModelConfig("vit_tiny_patch16_224", pool="cls", **values))
