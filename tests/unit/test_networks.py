"""Networks of other families: their short names, their constructor's arguments, and every size they are asked for."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from ssl_vit.configs import (
    ModelConfig,
    ResolvedModel,
    as_words,
    from_dict,
    networks,
    parse,
    to_dict,
)
from ssl_vit.configs.networks import FAMILIES, NETWORKS
from ssl_vit.core.errors import UserError
from ssl_vit.methods.dino import DINORecipe, ResolvedDINO
from ssl_vit.methods.supervised import ResolvedSupervised, SupervisedRecipe
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.build import build_backbone, check_sizes, facts_of, model_facts
from ssl_vit.objectives.base import Clock
from ssl_vit.objectives.dino import DINO
from ssl_vit.objectives.supervised import Supervised
from ssl_vit.questions.scope import NETS, Scope, Training
from ssl_vit.script import all_presets
from ssl_vit.training.metering import forward_flops
from ssl_vit.verdict.opening import _lacking

SWIN = "swin_tiny_patch4_window7_224"


def resolved(name: str, side: int = 32, **given: Any) -> ResolvedModel:
    asked = ModelConfig(name, **given)
    return networks.resolve_model(asked, side, facts_of(asked, side))


def built(name: str, side: int = 32, channels: int = 3, **given: Any) -> Backbone:
    torch.manual_seed(0)
    return build_backbone(resolved(name, side, **given), channels)


def costs(cfg: ResolvedModel, channels: int) -> tuple[int, int]:
    """Parameters, and operations of a forward pass."""
    with torch.device("meta"):
        backbone = build_backbone(cfg, channels).eval()
    return sum(p.numel() for p in backbone.parameters()), forward_flops(backbone)


def assert_alike(found: tuple[int, int], vit: tuple[int, int], parameters: float, operations: float) -> None:
    """Within these shares of the ViT's."""
    assert abs(found[0] / vit[0] - 1) <= parameters
    assert abs(found[1] / vit[1] - 1) <= operations


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_as_large_as_the_vit_and_reads_what_it_reads(name: str) -> None:
    found = []
    for asked, side in ((name, 8), (name, 96), (name, 32), (f"vit_{name.partition('_')[2]}", 32)):
        cfg = resolved(asked, side)
        assert cfg.img_size == side
        found.append(costs(cfg, 3))
    assert_alike(found[-2], found[-1], 0.16, 0.19)


@pytest.mark.parametrize("size", ["micro", "mini"])
@pytest.mark.parametrize(("side", "patch", "channels"), [(8, 2, 1), (32, 4, 3)])
def test_networks_of_the_questions_cost_what_the_vit_costs(
    size: Literal["micro", "mini"], side: int, patch: int, channels: int
) -> None:
    vit = NETWORKS[f"vit_{size}"]
    shape = {"size": size, "img_size": side, "patch": patch, "width": vit.width, "depth": vit.depth}
    scope = Scope((), (10,), 1, 1, 1.0, 1, **shape)
    found: dict[str, tuple[int, int]] = {}
    for net in NETS:
        model = scope.model(Training(net))
        cfg = networks.resolve_model(model, side, model_facts(*networks.wanted(model, side)))
        found[net] = costs(cfg, channels)
    for net, cost in found.items():
        assert_alike(cost, found["vit"], 0.1, 0.17 if net == "hybrid" else 0.15)


@pytest.mark.parametrize("name", [n for n in FAMILIES if n.endswith("_micro")])
def test_a_step_of_dino_and_of_training_on_labels(name: str) -> None:
    backbone = built(name)
    rates = backbone.drop_rates(0.5)
    assert rates is not None and backbone.draws_drop_path
    cfg = ResolvedDINO(
        out_dim=16, head_hidden=16, head_bottleneck=8, teacher_temp=0.04, warmup_teacher_temp=0.04, teacher_warmup=0.0,
        centring="mean", check_steps=10**9, drop_path=0.0,
    )  # fmt: skip
    dino = DINO(backbone, cfg, pool="mean", batch_size=4)
    views = torch.randn(4, 2, 3, 32, 32)
    drop = (torch.rand(4, 2, *rates.shape) >= rates) / (1 - rates)
    dino.begin_step(Clock(0, 10, 1.0))
    loss = dino({"globals": views, "drop_globals": drop}).loss
    loss.backward()
    assert all(p.grad is not None for p in dino.student.parameters() if p.requires_grad)  # DDP refuses others
    labelled = Supervised(built(name), 3, ResolvedSupervised("mean", mixup=0.0, cutmix=0.0))
    optimizer = torch.optim.SGD(labelled.net.parameters(), 1e-2)
    inputs = {"images": views[:, 0], "targets": torch.eye(3)[torch.tensor([0, 1, 2, 0])]}
    before = labelled(inputs | {"drop": drop[:, 0]}).loss
    before.backward()
    optimizer.step()
    assert labelled(inputs | {"drop": drop[:, 0]}).loss < before


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("hybrid_micro", (32, 96)),
        ("deit_micro", (224, 96)),
        ("swin_micro", (32, 16)),
        ("pvt_micro", (32, 8)),
    ],
)
def test_one_network_reads_several_sizes(name: str, sizes: tuple[int, ...]) -> None:
    cfg = resolved(name)
    with torch.device("meta"):
        check_sizes(build_backbone(cfg, 3), 32, dict(zip(("global", "local"), sizes, strict=False)))


@pytest.mark.parametrize("name", ["beit_base_patch16_224", "vit_relpos_small_patch16_224"])
def test_sizes_that_are_asked_for(name: str) -> None:
    for size in (32, 96, 224):
        with torch.device("meta"):
            backbone = build_backbone(resolved(name, 32, img_size=size), 3)
        assert backbone.img_size == size
    assert resolved(name, 32).img_size == 224  # its own, as of a plain ViT
    asked = ModelConfig(name)
    assert networks.resolve_model(asked, 32, model_facts(name), "px32").img_size == 32


def test_arguments_come_over_those_of_the_short_name() -> None:
    found = resolved("swin_micro", args={"embed_dim": 16})
    assert found.args == FAMILIES["swin_micro"].args | {"embed_dim": 16}
    assert (found.name, found.img_size, found.pool) == (SWIN, 32, "mean")
    assert networks.resolve_model(found, 32, facts_of(found)) == found  # config.yaml repeats it
    assert build_backbone(found, 3).embed_dim == 32
    assert resolved("resnet18").args is None


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        (
            SWIN,
            {"embed_dims": 3},
            r"--model\.args: SwinTransformer .* has no embed_dims, it has .*depths.*did you mean embed_dim",
        ),
        ("swin_micro", {"img_size": 64}, r"img_size cannot be given, that is --model\.img_size"),
        ("swin_micro", {"attn_drop_rate": 0.1}, "attn_drop_rate cannot be given, dropout is off"),
        ("pvt_micro", {"in_chans": 1}, r"in_chans cannot be given, the images say it"),
        ("swin_micro", {"depths": "many"}, r'--model\.args \{"depths": "many"\}: swin_micro cannot be built so \('),
        ("cct_micro", {"depth": "three"}, r'--model\.args \{"depth": "three"\}: cct_micro cannot be built so \('),
        ("cct_micro", {"depth": 0}, r'--model\.args \{"depth": 0\} leaves cct_micro or a stage of it without blocks'),
        ("cct_micro", {"conv_layers": 0, "embed_dim": 32}, r'--model\.args \{"conv_layers": 0\} leaves cct_micro'),
        ("swin_micro", {"depths": [2, 0]}, r'--model\.args \{"depths": \[2, 0\]\} leaves swin_micro'),
        ("dat_micro", {"stages": ["", "LD"]}, r'--model\.args .*"stages".* leaves dat_micro'),
        ("resnet18", {"layers": [2, 2, 2, 0]}, r'--model\.args .*"layers".* leaves resnet18'),
        (
            "vit_micro",
            {"depth": 3},
            r"--model\.args \{\"depth\": 3\} is for networks that are no plain ViT.*--model\.img",
        ),
    ],
)
def test_arguments_that_cannot_be(name: str, args: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        resolved(name, args=args)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cct_mirco", "did you mean cct_micro, .*"),
        ("cct", r"did you mean cct_micro, cct_mini\?"),
        ("vit_mikro", "did you mean vit_micro, .*"),
        ("vit_smal_patch16_224.dino", "did you mean vit_small_patch16_224, .*"),
    ],
)
def test_a_misspelt_name(name: str, words: str) -> None:
    with pytest.raises(UserError, match=f"--model.name {name} is neither a short name nor a timm model; {words}"):
        facts_of(ModelConfig(name))


@pytest.mark.parametrize(
    ("name", "size", "args", "why", "sizes"),
    [
        ("dat_micro", 20, None, "windows of 4 x 4 do not divide a map of 10 x 10 places", (16, 32)),
        ("dat_micro", 32, {"window_sizes": [3, 3]}, "windows of 3 x 3 do not divide a map of 16 x 16 places", (24, 36)),
        ("swin_micro", 7, None, "Input height .* divisible by patch size", (4, 8)),
        ("convnext_micro", 7, None, ".*Kernel size", (8,)),
        ("deit_micro", 30, None, "Input height .* divisible by patch size", (28, 32)),
    ],
)
def test_sizes_that_cannot_be_read_and_the_nearest_that_can(
    name: str, size: int, args: dict[str, Any] | None, why: str, sizes: tuple[int, ...]
) -> None:
    asked = ModelConfig(name, size, args=args)
    told = (
        rf"an image of {size} x {size} pixels \({why}.*\); choose --model.img_size {' or '.join(map(str, sizes))}, or"
    )
    with pytest.raises(UserError, match=told) as caught:
        build_backbone(networks.resolve_model(asked, 32, facts_of(asked), "px32"), 3)
    assert "\n" not in str(caught.value) and "timm made it" not in str(caught.value)
    for good in sizes:
        assert built(name, img_size=good, args=args).img_size == good


def test_arguments_as_words_and_as_yaml() -> None:
    args = {"embed_dim": 48, "depths": [2, 2], "num_heads": [2, 4], "patch_norm": False, "norm_layer": "layernorm"}
    for recipe in (DINORecipe, SupervisedRecipe):
        config = recipe(model=ModelConfig(SWIN, args=args))
        assert parse(recipe, "", as_words(config)) == config
        assert from_dict(recipe, to_dict(config)) == config
    found = parse(SupervisedRecipe, "", ["--model.name", SWIN, "--model.args", '{"embed_dim": 48, "depths": [2, 2]}'])
    assert found.model.args == {"embed_dim": 48, "depths": [2, 2]}


def test_short_names_are_unique_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert not set(NETWORKS) & set(FAMILIES)
    with pytest.raises(SystemExit):
        parse(DINORecipe, "", ["--preset"], listing=all_presets)
    printed = capsys.readouterr().out
    assert all(name in printed for name in [*NETWORKS, *FAMILIES])
    assert max(map(len, networks.table().splitlines())) <= 120


def test_networks_in_words() -> None:
    made = {"in_chans": 1, "img_size": 8, "strict_img_size": False}
    assert networks.in_words(SWIN, FAMILIES["swin_micro"].args | made, 8) == f"swin_micro ({SWIN}) at 8 px"
    assert networks.in_words(SWIN, {"embed_dim": 24} | made, 8) == f'{SWIN} at 8 px with {{"embed_dim": 24}}'
    assert networks.in_words("resnet18", {"in_chans": 1}, 32) == "resnet18 at 32 px"
    plain = {"embed_dim": 64, "depth": 4, "patch_size": 2, "img_size": 8, "global_pool": "avg"}
    assert networks.in_words("vit_tiny_patch16_224", plain, 8) == (
        "ViT of 4 blocks of width 64, patches of 2 px at 8 px"
    )


def test_a_verdict_leaves_out_what_a_family_is_not_enough_for() -> None:
    starts = ["mae", "dino"]
    found = _lacking(starts, "swin_micro", "pooled", dict.fromkeys(starts, False))
    assert found == {"mae": "MAE leaves out tokens of an image, which swin_micro cannot"}
    assert _lacking(starts, "vit_micro", "dropping", dict.fromkeys(starts, True)) == {}
    with pytest.raises(UserError, match=r"--verdict\.methods mae: MAE leaves out tokens of an image, which swin_micro"):
        _lacking(starts, "swin_micro", "pooled", dict.fromkeys(starts, True))
