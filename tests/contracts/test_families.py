"""Every family of networks with every method: what goes together works and shows nothing hidden; else it is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import ssl_vit.families  # noqa: F401  as whoever loads such a folder by plain timm
import timm
import torch
import torch.nn.functional as F
from ssl_vit.configs import ModelConfig, networks
from ssl_vit.configs.networks import FAMILIES, meets
from ssl_vit.core.errors import UserError
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.scale import PixelScale
from ssl_vit.exports.classifier import Labelling, TrainedClassifier
from ssl_vit.exports.timm_folder import Exported, export_backbone, load_backbone
from ssl_vit.methods import METHODS
from ssl_vit.methods.distill import DistillConfig, DistillRecipe
from ssl_vit.methods.method import imported
from ssl_vit.methods.supervised import ResolvedSupervised
from ssl_vit.methods.taught import TaughtConfig
from ssl_vit.models.backbone import Backbone, Replace, TokenBackbone, Tokens
from ssl_vit.models.build import adapt, build_backbone, model_facts, timm_args
from ssl_vit.models.families import ours
from ssl_vit.models.heads import Classifier
from ssl_vit.models.pooled import PooledBackbone
from ssl_vit.models.tokens import FamilyTokens
from ssl_vit.models.vit import gather_patches, patchify
from ssl_vit.objectives.base import Built, Clock, Objective
from ssl_vit.objectives.simmim import hidden_pixels
from ssl_vit.objectives.taught import Taught
from ssl_vit.training.forecast import network_of
from torch import Tensor, nn

from made_teacher import save_teacher

NAMES = ["vit_micro", *(name for name in FAMILIES if name.endswith("_micro"))]
OURS = [name for name in NAMES if name in FAMILIES and ours(FAMILIES[name].timm_name)]
"""Families that timm knows of this project alone."""
HIDING = ["beit_micro", "relative_micro", "deit_micro"]
"""Families that are no plain ViT, and yet patches can be hidden from them."""
SIDE = 32
SCALE = PixelScale((0.5,) * 3, (0.25,) * 3, 8)


def backbone(name: str, side: int = SIDE, channels: int = 3, **args: Any) -> Backbone:
    torch.manual_seed(0)
    model = ModelConfig(name, args=args or None)
    facts = model_facts(*networks.wanted(model, side, "px32"))
    return build_backbone(networks.resolve_model(model, side, facts, "px32"), channels)


def stirred(net: Backbone) -> Backbone:
    """In double precision, with nothing at a value (zero biases, tiny layer scales) that would hide a term."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for parameter_name, parameter in net.named_parameters():
            if "gamma" in parameter_name or ".ls" in parameter_name:
                parameter.uniform_(0.5, 1.0)
    return net.double().eval()


def tokens_of(name: str, **args: Any) -> FamilyTokens:
    net = stirred(backbone(name, **args))
    assert isinstance(net, FamilyTokens)
    return net


def pixels(net: Backbone, count: int = 3) -> Tensor:
    return torch.randn(count, net.channels, net.img_size, net.img_size, dtype=torch.float64)


def all_of(tokens: Tokens) -> Tensor:
    return torch.cat([tokens.prefix, tokens.patches], dim=1)


# --- networks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_reading_images_layers_and_a_round_trip(name: str, tmp_path: Path) -> None:
    net = backbone(name, channels=2).eval()
    images = torch.randn(2, 2, SIDE, SIDE)
    pooled = net.forward_pooled(images, pool="mean")
    places = net.feature_map(images)
    assert pooled.shape == (2, net.embed_dim)
    assert places.shape[:1] == (2,) and places.shape[2] == places.shape[3] in (4, 8)
    layers = {n: net.layer_id(n) for n, _ in net.named_parameters()}
    assert set(range(net.depth + 1)) <= set(layers.values()) <= set(range(net.depth + 2))
    export_backbone(net, tmp_path / "run" / "backbone", PixelScale((0.5,) * 2, (0.25,) * 2, 8), "mean", {})
    found = load_backbone(str(tmp_path / "run")).backbone.eval()
    assert type(found) is type(net)
    assert torch.equal(found.forward_pooled(images, pool="mean"), pooled)


@pytest.mark.parametrize("name", NAMES)
def test_layers_are_numbered_as_they_run(name: str) -> None:
    net = backbone(name).eval()
    ran: list[tuple[int, str]] = []

    def note(part: nn.Module, given: Any, place: str) -> None:
        ran.extend((net.layer_id(f"{place}.{n}"), place) for n, _ in part.named_parameters(recurse=False))

    for place, part in net.named_modules():
        part.register_forward_pre_hook(partial(note, place=place))
    net.forward_pooled(torch.randn(2, 3, SIDE, SIDE), pool="mean")
    ids = [layer for layer, _ in ran]
    assert ids == sorted(ids), [(a, b) for a, b in pairwise(ran) if a[0] > b[0]]
    assert set(ids) >= set(range(1, net.depth + 1))


@pytest.mark.parametrize("name", OURS)
def test_plain_timm_loads_networks_that_are_registered(name: str, tmp_path: Path) -> None:
    net = stirred(backbone(name, channels=2)).float()
    images = torch.randn(2, 2, SIDE, SIDE)
    export_backbone(net, tmp_path / "backbone", SCALE, "mean", {})
    theirs = timm.create_model(f"local-dir:{tmp_path / 'backbone'}", pretrained=True).eval()
    assert isinstance(net, PooledBackbone) and type(theirs) is type(net.model)
    assert (theirs(images) - net.forward_pooled(images, pool="mean")).abs().max() <= 1e-5


UNREADABLE = {("dat_micro", 40)}
"""Networks and sides that they cannot read: windows of 4 x 4 places do not cut a map of 10 x 10."""


@pytest.mark.parametrize(("name", "side"), [(name, side) for name in NAMES for side in (48, 40)])
def test_images_of_another_size(name: str, side: int) -> None:
    """One network for both, or a copy that is resized, or one clear line."""
    net = backbone(name).eval()
    if (name, side) in UNREADABLE:
        with pytest.raises(UserError, match="cannot read images of that size"):
            adapt(net, img_size=side)
        return
    other = adapt(net, img_size=side).eval()
    images = torch.randn(2, 3, side, side)
    assert other.img_size == side
    assert other.forward_pooled(images, pool="mean").shape == (2, net.embed_dim)
    if isinstance(other, FamilyTokens):
        assert other.grid == (side // 4, side // 4)
        assert other.forward_tokens(images).patches.shape[1] == (side // 4) ** 2
        assert net.img_size == SIDE
        assert net.forward_pooled(torch.randn(2, 3, SIDE, SIDE), pool="mean").shape == (2, net.embed_dim)


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in [*HIDING, "hybrid_micro"]},
    "beit of one bias, with positions": (
        "beit_micro", {"use_rel_pos_bias": False, "use_shared_rel_pos_bias": True, "use_abs_pos_emb": True},
    ),
    "beit of both biases": ("beit_micro", {"use_shared_rel_pos_bias": True, "init_values": None}),
    "relative by a table, class token": ("relative_micro", {"rel_pos_type": "bias", "class_token": True}),
    "relative of one bias": ("relative_micro", {"shared_rel_pos": True}),
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_tokens_are_timms(name: str) -> None:
    called, args = VARIANTS[name]
    net = tokens_of(called, **args)
    images, model = pixels(net), net.model
    theirs = model.forward_features(images)  # pyright: ignore[reportCallIssue]
    ends = not isinstance(model.norm, torch.nn.Identity)
    assert (all_of(net.forward_tokens(images, norm=ends)) - theirs).abs().max() <= 1e-12
    normed = net.forward_tokens(images)
    assert (all_of(normed) - net._last_norm()(all_of(net.forward_tokens(images, norm=False)))).abs().max() <= 1e-12
    assert (normed.patches.std(dim=2) > 0.5).all() and normed.grid == net.grid == (8, 8)


@pytest.mark.parametrize("name", [n for n in VARIANTS if n != "hybrid_micro"])
def test_dropped_tokens_equal_masked_attention(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """timm's own model with a logit of minus infinity for every patch that is not kept."""
    called, args = VARIANTS[name]
    net = tokens_of(called, **args)
    images, patches, prefix = pixels(net), net.grid[0] * net.grid[1], net.prefix_tokens
    keep = torch.stack([torch.randperm(patches)[:19] for _ in images])
    found = net.forward_tokens(images, keep_ids=keep, norm=False)
    seen = torch.zeros(len(images), patches, dtype=torch.bool).scatter(1, keep, True)
    seen = torch.cat([torch.ones(len(images), prefix, dtype=torch.bool), seen], dim=1)
    hidden = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, -torch.inf)[:, None, None]
    plain = F.scaled_dot_product_attention

    def masked(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **more: Any) -> Tensor:
        return plain(q, k, v, attn_mask=hidden if attn_mask is None else attn_mask + hidden, **more)

    model: Any = net.model
    norm, model.norm = model.norm, torch.nn.Identity()
    with monkeypatch.context() as patch:
        patch.setattr(F, "scaled_dot_product_attention", masked)
        whole = model.forward_features(images)
    model.norm = norm
    assert (found.prefix - whole[:, :prefix]).abs().max() <= 1e-12 if prefix else found.prefix.shape[1] == 0
    assert (found.patches - gather_patches(whole[:, prefix:], keep)).abs().max() <= 1e-12
    without = net.forward_tokens(images, norm=False)
    assert (found.patches - gather_patches(without.patches, keep)).abs().max() > 1e-6  # the others do count


@pytest.mark.parametrize("name", VARIANTS)
def test_attention_maps_mix_the_values(name: str) -> None:
    """Rows sum to 1, and with them values give what each block's attention gives."""
    called, args = VARIANTS[name]
    net = tokens_of(called, **args)
    images, outputs, inputs = pixels(net, 2), list[Tensor](), list[Tensor]()
    blocks: Any = net.model.blocks
    rows = net.attentions(images)
    for block in blocks:
        block.attn.register_forward_hook(lambda part, given, out: (inputs.append(given[0]), outputs.append(out))[0])
    net.model(images)
    assert len(rows) == len(blocks) == 4
    for block, weights, given, out in zip(blocks, rows, inputs, outputs, strict=True):
        assert (weights.sum(dim=3) - 1).abs().max() <= 1e-12
        attn, width = block.attn, net.embed_dim
        bias = getattr(attn, "v_bias", None)
        bias = bias if bias is not None or attn.qkv.bias is None else attn.qkv.bias[2 * width :]
        value = F.linear(given, attn.qkv.weight[2 * width :], bias).unflatten(2, (attn.num_heads, -1)).transpose(1, 2)
        assert (attn.proj((weights @ value).transpose(1, 2).flatten(2)) - out).abs().max() <= 1e-12
    first = net.attentions(images, slice(0, 1))[-1]
    assert (first - rows[-1][:, :, :1]).abs().max() <= 1e-12
    if net.prefix_tokens:
        assert (net.attention(images) - rows[-1][:, :, 0, net.prefix_tokens :]).abs().max() <= 1e-12
    else:
        with pytest.raises(ValueError, match="no class token"):
            net.attention(images)


@pytest.mark.parametrize("name", HIDING)
def test_replaced_patches(name: str) -> None:
    net = tokens_of(name)
    images, count = pixels(net), net.grid[0] * net.grid[1]
    projection: Any = net.model.patch_embed
    own = projection.proj(images).flatten(2).transpose(1, 2)
    plain = all_of(net.forward_tokens(images))
    everywhere = torch.ones(len(images), count, dtype=torch.bool)
    assert (all_of(net.forward_tokens(images, replace=Replace(everywhere, own))) - plain).abs().max() <= 1e-12
    hidden = torch.rand(everywhere.shape) < 0.5
    hidden[:, 0], hidden[:, 1] = True, False
    token = torch.randn(net.embed_dim, dtype=torch.float64, requires_grad=True)
    images.requires_grad_(True)
    found = all_of(net.forward_tokens(images, replace=Replace(hidden, token)))
    into, into_token = torch.autograd.grad((found**3).sum(), [images, token])
    reached = patchify(into, net.patch_size).abs().amax(dim=2)
    assert (reached[hidden] == 0).all() and (reached[~hidden] > 0).all() and (into_token != 0).all()
    keep = torch.arange(count).expand(len(images), -1)
    kept = all_of(net.forward_tokens(images, keep_ids=keep, replace=Replace(hidden, token)))
    assert (kept - found).abs().max() <= 1e-12


@pytest.mark.parametrize("name", [*HIDING, "hybrid_micro"])
def test_stochastic_depth_and_recomputing_change_no_number(name: str) -> None:
    net = tokens_of(name)
    images, rates = pixels(net), net.drop_rates(0.5)
    assert rates is not None
    drop = ((torch.rand(len(images), *rates.shape) >= rates) / (1 - rates)).double()
    tokens = net.forward_tokens(images, drop=drop, norm=False)
    model: Any = net.model
    theirs = net.places.run(model.forward_features, images, drop)
    ours = all_of(tokens) if isinstance(model.norm, torch.nn.Identity) else model.norm(all_of(tokens))
    assert (ours - theirs).abs().max() <= 1e-12
    (tokens.patches**2).sum().backward()
    before = [None if p.grad is None else p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    net.recompute_activations()
    again = net.forward_tokens(images, drop=drop, norm=False)
    (again.patches**2).sum().backward()
    for p, gradient in zip(net.parameters(), before, strict=True):
        assert (p.grad is None) == (gradient is None)
        assert p.grad is None or gradient is None or (p.grad - gradient).abs().max() <= 1e-12


def test_a_stem_that_looks_beyond_patches_hides_none() -> None:
    net = tokens_of("hybrid_micro")
    images, keep = pixels(net), torch.zeros(3, 1, dtype=torch.long)
    hidden = Replace(torch.ones(3, 64, dtype=torch.bool), torch.zeros(64, dtype=torch.float64))
    refused: list[dict[str, Any]] = [{"keep_ids": keep}, {"replace": hidden}]
    for given in refused:
        with pytest.raises(ValueError, match="looks beyond each patch"):
            net.forward_tokens(images, **given)
    images.requires_grad_(True)  # and it does
    (into,) = torch.autograd.grad(net.forward_tokens(images, norm=False).patches[:, 0].sum(), images)
    assert (into[:, :, -4:, -4:] != 0).any()


# --- methods -------------------------------------------------------------------------------------------------------


def made(name: str, method_name: str, folder: Path, dtype: torch.dtype) -> tuple[Built, Backbone]:
    """Objective and view of a method on a family, with the defaults for 32 px."""
    method = METHODS[method_name]
    asked: Any = method.recipe(model=ModelConfig(name), preset="px32-cpu")
    if isinstance(asked, DistillRecipe):
        asked = DistillRecipe(
            model=ModelConfig(name), preset="px32-cpu",
            distill=DistillConfig(save_teacher(folder / "teacher", img_size=8, patch_size=4, embed_dim=16, depth=1,
                                               num_heads=2, in_chans=3)),
        )  # fmt: skip
    facts, preset = network_of(method, asked, 64, SIDE, cpu=True)
    cfg = method.resolve(asked, facts, preset)
    torch.manual_seed(0)
    net = build_backbone(cfg.model, 3)
    return imported(method.build)(cfg, net, SCALE, dtype), net


def batch() -> Batch:
    torch.manual_seed(1)
    index = torch.arange(4)
    seen = torch.randint(0, 256, (4, 3, SIDE, SIDE)).to(torch.uint8)
    return Batch(seen, index, torch.zeros_like(index), torch.full((4, 2), float(SIDE)), True, None)


def allowed(name: str, method: str) -> bool:
    return meets(model_facts(*networks.wanted(ModelConfig(name))).offers, METHODS[method].needs)


PAIRS = [(name, method) for name in NAMES for method in METHODS]
QUICK = ("vit_micro", "beit_micro", "hybrid_micro")
"""What the quick tier looks at."""


@pytest.mark.parametrize(
    ("name", "method"), [pytest.param(n, m, marks=() if n in QUICK else pytest.mark.slow) for n, m in PAIRS]
)
def test_a_step_lowers_the_loss_or_the_pair_is_refused(name: str, method: str, tmp_path: Path) -> None:
    """A small step against the gradient, on the same views; every trained parameter has one, as DDP asks."""
    if not allowed(name, method):
        able = ", ".join(m for m in METHODS if allowed(name, m))
        words = (
            rf"--model.name {name} does not go with a method that leaves .*: .*It goes with {able} and training on lab"
        )
        with pytest.raises(UserError, match=words):
            made(name, method, tmp_path, torch.float64)
        return
    built, _ = made(name, method, tmp_path, torch.float64)
    lowers_the_loss(built.objective.double().train(), built.view(batch(), 0))


def lowers_the_loss(objective: Objective, inputs: dict[str, Tensor]) -> None:
    objective.begin_step(Clock(100, 1000, 10.0))
    before = objective(inputs).loss
    before.backward()
    trained = {n: p for n, p in objective.named_parameters() if p.requires_grad}
    assert [n for n, p in trained.items() if p.grad is None] == []
    length = sum(float(p.grad.square().sum()) for p in trained.values() if p.grad is not None) ** 0.5
    assert length > 0
    with torch.no_grad():
        for p in trained.values():
            assert p.grad is not None
            p -= 1e-5 / length * p.grad
    assert float(objective(inputs).loss.detach()) < float(before.detach())


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in NAMES])
def test_a_step_of_what_is_taught_lowers_the_loss(name: str) -> None:
    """Of the class, of the teacher and of every place; the teacher's head reads a norm behind its pooling."""
    net, of = backbone(name), backbone("convnext_micro")
    teacher = Classifier(of, 3, pool="mean").double()
    with torch.no_grad():  # heads start at zero
        for parameter in teacher.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    exported = Exported(of, SCALE, "mean", SIDE, {}, "hash", Path())
    known = TrainedClassifier(teacher, exported, Labelling("class", ("cat", "dog", "owl"), None))
    loss, cfg = ResolvedSupervised("mean", 0.1, 0.0, 0.0, 0.0, 0.0), TaughtConfig("RUN", "soft", 0.5, token_weight=0.5)
    objective = Taught(net, 3, loss, cfg, known, torch.arange(3)).double().train()
    with torch.no_grad():
        for head in (objective.net.head, objective.net.second, objective.dense):
            for parameter in () if head is None else head.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    images = torch.randn(4, 3, SIDE, SIDE).double()
    targets = torch.rand(4, 3).double().softmax(dim=1)
    inputs = {"images": images, "taught": images, "targets": targets}
    assert set(objective(inputs).metrics) == {"labels", "teacher", "places"}
    lowers_the_loss(objective, inputs)


def hidden_of(inputs: dict[str, Tensor], net: Backbone) -> Tensor:
    """Which pixels the view hides: squares, or patches by their numbers."""
    if "hidden" in inputs:
        return hidden_pixels(inputs["hidden"], SIDE)
    assert isinstance(net, TokenBackbone)
    rows, columns = net.grid
    cells = torch.zeros(len(inputs["mask_ids"]), rows * columns, dtype=torch.bool)
    return hidden_pixels(cells.scatter(1, inputs["mask_ids"], True).unflatten(1, (rows, columns)), SIDE)


HIDES = ["mae", "simmim", "beit"]


def test_methods_that_hide_are_those_that_tell_what_they_encode(tmp_path: Path) -> None:
    found = [m for m in METHODS if {"hidden", "mask_ids"} & set(made("vit_micro", m, tmp_path, torch.float64)[0].view(
        batch(), 0))]  # fmt: skip
    assert sorted(found) == sorted(HIDES)
    for method in METHODS:
        built, _ = made("vit_micro", method, tmp_path, torch.float64)
        told = built.objective.double().encoded(built.view(batch(), 0))
        assert (told is not None) == (method in HIDES)


@pytest.mark.parametrize(("name", "method"), [(n, m) for n, m in PAIRS if m in HIDES and allowed(n, m)])
def test_hidden_pixels_reach_nothing_that_the_network_says(name: str, method: str, tmp_path: Path) -> None:
    """The gradient of all that is encoded is exactly 0 where pixels are hidden, and not where they are seen."""
    built, net = made(name, method, tmp_path, torch.float64)
    stirred(net)
    objective = built.objective.double().train()
    inputs = built.view(batch(), 0)
    inputs["images"].requires_grad_(True)
    told = objective.encoded(inputs)
    assert told is not None
    (into,) = torch.autograd.grad((told * torch.randn_like(told)).sum(), inputs["images"])
    hidden = hidden_of(inputs, net).expand_as(into)
    assert hidden.any() and not hidden.all()
    assert (into[hidden] == 0).all()
    assert (into[~hidden] != 0).to(torch.float32).mean() > 0.5


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("beit_micro", {"use_rel_pos_bia": True}, r"Beit \(beit_base\S+\) has no use_rel_pos_bia, .*did you mean"),
        ("mobilevit_micro", {"width": [8]}, r"ByobNet .* has no width, it has widths, dims, .*did you mean widths"),
        ("resnet_micro", {"channel": [8]}, r"has no channel, it has .*channels.*did you mean channels"),
        ("cct_micro", {"conv_layer": 1}, r"has no conv_layer, it has .*conv_layers.*did you mean conv_layers"),
    ],
)  # fmt: skip
def test_arguments_of_a_constructor_that_it_does_not_have(name: str, args: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words) as told:
        model_facts(*networks.wanted(ModelConfig(name, args=args)))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("name", [name for name in NAMES if name in FAMILIES])
def test_arguments_that_are_misspelt(name: str) -> None:
    """Every family says so, by its class, and what it has instead."""
    known = max(FAMILIES[name].args, key=len)
    wrong = f"{known}x"
    with pytest.raises(
        UserError, match=rf"--model\.args: \w+ \({FAMILIES[name].timm_name}\) has no {wrong}, it has "
    ) as told:
        model_facts(*networks.wanted(ModelConfig(name, args={wrong: 1})))
    assert f"did you mean {known}" in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize(("before", "now"), [("relpos_micro", "relative_micro"), ("distilled_mini", "deit_mini")])
def test_names_of_before_are_taken(before: str, now: str) -> None:
    assert networks.wanted(ModelConfig(before)) == networks.wanted(ModelConfig(now))
    build: Callable[[str], Backbone] = backbone
    assert build(before).model_args == build(now).model_args


def test_pooled_features_are_the_same_as_without_tokens() -> None:
    net = tokens_of("beit_micro")
    plain = PooledBackbone(net.model, net.architecture, net.model_args, SIDE)
    images = pixels(net)
    assert torch.equal(plain.forward_pooled(images, pool="mean"), net.forward_pooled(images, pool="mean"))
    assert timm_args(networks.resolve_model(ModelConfig("beit_micro"), SIDE, model_facts(
        *networks.wanted(ModelConfig("beit_micro")))), 3)["img_size"] == SIDE  # fmt: skip
