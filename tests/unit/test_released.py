"""Weights in the layouts of their authors: files made of random tensors give the outputs of the network they hold."""

from __future__ import annotations

import argparse
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.scale import measure_scale
from ssl_vit.data.sources import hub
from ssl_vit.exports.timm_folder import load_backbone
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.build import adapt, make_backbone
from ssl_vit.models.positions import sincos_2d
from ssl_vit.released.files import read_state
from ssl_vit.released.huggingface import _scale
from ssl_vit.released.layouts import PHOTOGRAPHS, Network, converted
from ssl_vit.released.starts import check_whole, for_images, load_start, read_start
from ssl_vit.runs.networks import find_network
from torch import Tensor, nn

WIDTH, SIDE, PATCH = 64, 16, 4
ARGS: dict[str, Any] = {
    "img_size": SIDE, "patch_size": PATCH, "embed_dim": WIDTH, "depth": 2, "num_heads": 1, "num_classes": 0,
}  # fmt: skip
State = dict[str, Tensor]


def network(name: str = "vit_small_patch16_224", **args: Any) -> nn.Module:
    """timm's, with every tensor drawn."""
    model: nn.Module = timm.create_model(name, **{**ARGS, "global_pool": "token", **args})
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def images(channels: int = 3, side: int = SIDE) -> Tensor:
    return torch.randn(3, channels, side, side, generator=torch.Generator().manual_seed(5))


def check(given: Path | str, expected: nn.Module, **about: Any) -> Backbone:
    """What a start makes of images is what timm's network makes of them."""
    start = read_start(str(given))
    backbone = start.backbone.eval()
    with torch.no_grad():
        found = backbone.forward_pooled(images(), pool=start.pool)
        assert torch.allclose(found, expected(images()), rtol=0, atol=1e-6)
    for name, value in about.items():
        assert start.about.get(name) == value, name
    assert start.about["objective"] == "public weights"
    assert start.scale == PHOTOGRAPHS
    return backbone


def save(path: Path, content: Any) -> Path:
    torch.save(content, path)
    return path


def beside(names: str) -> State:
    return {name: torch.randn(2) for name in names.split()}


DECODER = "mask_token decoder_pos_embed decoder_embed.weight decoder_blocks.0.norm1.weight decoder_pred.bias"


@pytest.mark.parametrize("decoder", ["", DECODER])
def test_mae(decoder: str, tmp_path: Path) -> None:
    model = network()
    with torch.no_grad():
        positions = model.get_parameter("pos_embed")
        positions.zero_()
        positions[0, 1:] = sincos_2d(WIDTH, (4, 4)).float()
    content = {"model": {**model.state_dict(), **beside(decoder)}, "args": argparse.Namespace(lr=1e-3), "epoch": 3}
    left = ["decoder_blocks", "decoder_embed", "decoder_pos_embed", "decoder_pred", "mask_token"] if decoder else None
    check(save(tmp_path / "mae.pth", content), model, layout="MAE", positions="sincos", beside=left)


def test_dino_released_and_as_training_leaves_it(tmp_path: Path) -> None:
    model = network()
    check(save(tmp_path / "dino_deitsmall16_pretrain.pth", model.state_dict()), model, layout="ViT", beside=None)
    state = {f"backbone.{name}": value for name, value in model.state_dict().items()}
    heads = beside("head.mlp.0.weight head.last_layer.weight_v")
    student = {f"module.{name}": 0 * value for name, value in {**state, **heads}.items()}
    whole = {
        "student": student,
        "teacher": {**state, **heads},
        "optimizer": {"state": {}},
        "args": argparse.Namespace(),
    }
    check(save(tmp_path / "checkpoint.pth", whole), model, beside=["head"])
    safetensors.torch.save_file(model.state_dict(), tmp_path / "dino.safetensors")
    check(tmp_path / "dino.safetensors", model, layout="ViT")


def test_fine_tuned_mae_has_its_norm_behind_the_mean(tmp_path: Path) -> None:
    model = network(global_pool="avg", fc_norm=True)
    content = {"model": {**model.state_dict(), **beside("head.weight head.bias")}}
    path = save(tmp_path / "finetuned.pth", content)
    assert read_start(str(path)).pool == "mean"
    check(path, model)


@pytest.mark.parametrize("chunks", [False, True])
@pytest.mark.parametrize("gated", [False, True])
def test_dinov2(gated: bool, chunks: bool, tmp_path: Path) -> None:
    name = "vit_giant_patch14_dinov2" if gated else "vit_small_patch14_dinov2"
    model = network(name, **({"mlp_ratio": 5.5} if gated else {}))
    state = dict(model.state_dict())
    if gated:
        state = {name.replace("fc1", "w12").replace("fc2", "w3"): value for name, value in state.items()}
    if chunks:
        state = {name.replace("blocks.", "blocks.0.") if "blocks." in name else name: v for name, v in state.items()}
    state["mask_token"] = torch.randn(1, WIDTH)
    path = save(tmp_path / "dinov2_vits14_pretrain.pth", state)
    check(path, model, layout="DINOv2", positions="learnable", beside=["mask_token"])
    teacher = {f"backbone.{name}": value for name, value in state.items()} | beside("dino_head.mlp.0.weight")
    check(save(tmp_path / "teacher.pth", {"teacher": teacher}), model, beside=["dino_head", "mask_token"])


def test_dinov2_with_registers(tmp_path: Path) -> None:
    model = network("vit_small_patch14_reg4_dinov2", reg_tokens=3)
    state = dict(model.state_dict())
    row = torch.randn(1, 1, WIDTH)  # theirs adds a position to the class token, and none to registers
    state |= {"cls_token": state["cls_token"] - row, "pos_embed": torch.cat([row, state["pos_embed"]], dim=1)}
    state |= {"register_tokens": state.pop("reg_token"), "mask_token": torch.randn(1, WIDTH)}
    check(save(tmp_path / "dinov2_vits14_reg4_pretrain.pth", state), model, layout="DINOv2")


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_dinov3(biased: bool, gated: bool, tmp_path: Path) -> None:
    name = f"vit_small_{'plus_' if gated else ''}patch16_dinov3{'_qkvb' if biased else ''}"
    model = network(name, num_heads=4, num_reg_tokens=2)
    state: State = {}
    for key, value in model.state_dict().items():
        if key.endswith("v_bias"):
            continue
        if key.endswith("q_bias"):
            bias = torch.cat([value, torch.full_like(value, torch.nan), model.state_dict()[key.replace("q_", "v_")]])
            state[key.replace("q_bias", "qkv.bias")] = bias
            state[key.replace("q_bias", "qkv.bias_mask")] = torch.ones(3 * WIDTH)
            continue
        for own, theirs in (("gamma_1", "ls1.gamma"), ("gamma_2", "ls2.gamma"), ("reg_token", "storage_tokens"),
                            ("fc1_g", "w1"), ("fc1_x", "w2"), ("fc2", "w3" if gated else "fc2")):  # fmt: skip
            key = key.replace(own, theirs)
        state[key] = value
    periods = 100.0 ** (2 * torch.arange(4) / 8)  # heads of 16 numbers
    state |= {"rope_embed.periods": periods, "mask_token": torch.randn(1, WIDTH), "local_cls_norm.bias": torch.ones(3)}
    path = save(tmp_path / "dinov3_vits16_pretrain.pth", state)
    assert read_start(str(path)).size == 256
    check(f"{path}@{SIDE}", model, layout="DINOv3")
    save(path, {**state, "rope_embed.periods": 2 * periods})
    with pytest.raises(UserError, match="rotary positions of other periods"):
        read_start(str(path))


def theirs(name: str, state: State) -> State:
    """Names of DINOv2's and DINOv3's authors for what timm calls otherwise; shapes alone are right."""
    pairs = [("gamma_1", "ls1.gamma"), ("gamma_2", "ls2.gamma"), ("reg_token", "storage_tokens")]
    if "dinov2" in name:
        pairs = [("reg_token", "register_tokens")] + ([("fc1", "w12"), ("fc2", "w3")] if "giant" in name else [])
    elif "fc1_g" in " ".join(state):
        pairs += [("fc1_g", "w1"), ("fc1_x", "w2"), ("fc2", "w3")]
    for own, other in pairs:
        state = {key.replace(own, other): value for key, value in state.items()}
    if "register_tokens" in state:
        row = state["pos_embed"][:, :1]
        state["pos_embed"] = torch.cat([row, state["pos_embed"]], dim=1)
    return state


@pytest.mark.parametrize(
    "name",
    [
        "vit_base_patch16_224", "vit_large_patch16_224", "vit_huge_patch14_224",  # MAE
        "vit_tiny_patch16_224", "vit_small_patch16_224", "vit_small_patch8_224", "vit_base_patch8_224",  # DeiT, DINO
        *(f"vit_{size}_patch14{reg}_dinov2" for size in ("small", "base", "large", "giant") for reg in ("", "_reg4")),
        *(f"vit_{size}_patch16_dinov3" for size in ("small", "small_plus", "base", "large", "huge_plus", "7b")),
    ],
)  # fmt: skip
def test_published_sizes(name: str) -> None:
    with torch.device("meta"):
        model: Any = timm.create_model(name, num_classes=0, global_pool="token")
    shapes = {key: value.shape for key, value in model.state_dict().items()}
    state = theirs(name, {key: torch.zeros(1).expand(shape) for key, shape in shapes.items()})
    heads = model.blocks[0].attn.num_heads
    if "dinov3" in name:
        count = model.embed_dim // heads // 4
        state["rope_embed.periods"] = 100.0 ** (torch.arange(count) / count)
    found = converted(state, "it")
    with torch.device("meta"):
        built: Any = timm.create_model(found.architecture, num_classes=0, **found.args)
    assert {key: value.shape for key, value in found.state.items()} == shapes
    assert {key: value.shape for key, value in built.state_dict().items()} == shapes
    assert built.blocks[0].attn.num_heads == heads
    assert found.size == (256 if "dinov3" in name else model.patch_embed.img_size[0])


def transformers_folder(folder: Path, kind: str) -> Any:
    """A folder of transformers with random tensors, and its network."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
             "image_size": SIDE, "patch_size": PATCH, "layer_norm_eps": 1e-6}  # fmt: skip
    if kind == "vit":
        model = transformers.ViTModel(transformers.ViTConfig(**sizes))
    else:
        more = {"decoder_hidden_size": 16, "decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 2}
        model = transformers.ViTMAEForPreTraining(transformers.ViTMAEConfig(**sizes, **more, mask_ratio=0.0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    model.save_pretrained(folder)
    return model.eval().double()


@pytest.mark.parametrize("kind", ["vit", "vit_mae"])
@pytest.mark.filterwarnings("ignore")
def test_folders_of_transformers(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = transformers_folder(tmp_path, kind)
    start = read_start(str(tmp_path))
    with torch.no_grad():
        if kind == "vit":
            expected = model(images().double()).last_hidden_state[:, 0]
        else:  # without hidden patches, in an order that does not change them
            expected = model.vit(images().double(), noise=torch.arange(16.0).expand(3, -1)).last_hidden_state[:, 0]
        found = start.backbone.double().eval().forward_pooled(images().double(), pool="cls")
    assert torch.allclose(found, expected, rtol=0, atol=1e-9)
    assert start.about["layout"] == {"vit": "ViT", "vit_mae": "MAE"}[kind]
    assert start.about["beside"] == (["pooler"] if kind == "vit" else ["decoder"])
    assert start.about["untold_scale"]
    (tmp_path / "preprocessor_config.json").write_text('{"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}')
    assert read_start(str(tmp_path)).scale.mean == (0.1, 0.2, 0.3)
    (tmp_path / "preprocessor_config.json").write_text("[" * 100_000)
    assert read_start(str(tmp_path)).about["untold_scale"]


@pytest.mark.parametrize(
    ("change", "read"),
    [({"do_rescale": True, "rescale_factor": 0.00392156862745098}, True), ({"rescale_factor": 1 / 127.5}, False),
     ({"do_normalize": False}, False), ({"do_rescale": False}, False), ({"image_std": [0.0, 1.0, 1.0]}, False),
     ({"image_std": [0.5]}, False)],
)  # fmt: skip
def test_pixels_that_transformers_scales_otherwise(change: dict[str, Any], read: bool, tmp_path: Path) -> None:
    told = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, **change}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(told))
    assert (_scale(tmp_path) is not None) == read


OLD_AND_NEW = [
    ("encoder.layer.{}.attention.attention.query", "layers.{}.attention.q_proj"),
    ("encoder.layer.{}.attention.attention.key", "layers.{}.attention.k_proj"),
    ("encoder.layer.{}.attention.attention.value", "layers.{}.attention.v_proj"),
    ("encoder.layer.{}.attention.output.dense", "layers.{}.attention.o_proj"),
    ("encoder.layer.{}.intermediate.dense", "layers.{}.mlp.fc1"),
    ("encoder.layer.{}.output.dense", "layers.{}.mlp.fc2"),
    ("encoder.layer.{}.layernorm_before", "layers.{}.layernorm_before"),
    ("encoder.layer.{}.layernorm_after", "layers.{}.layernorm_after"),
]


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
def test_names_of_old_and_new_transformers(new: bool, file: str, tmp_path: Path) -> None:
    model, prefix = network(), "" if new else "vit."
    own = model.state_dict()
    state = {"embeddings.cls_token": own["cls_token"], "embeddings.position_embeddings": own["pos_embed"],
             "embeddings.patch_embeddings.projection.weight": own["patch_embed.proj.weight"],
             "embeddings.patch_embeddings.projection.bias": own["patch_embed.proj.bias"],
             "layernorm.weight": own["norm.weight"], "layernorm.bias": own["norm.bias"]}  # fmt: skip
    for block in range(2):
        parts: list[dict[str, Tensor]] = [{}, {}, {}]
        for kind in ("weight", "bias"):
            for part, value in zip(parts, own[f"blocks.{block}.attn.qkv.{kind}"].chunk(3), strict=True):
                part[kind] = value.clone()
        for name in ("attn.proj", "mlp.fc1", "mlp.fc2", "norm1", "norm2"):
            parts.append({kind: own[f"blocks.{block}.{name}.{kind}"] for kind in ("weight", "bias")})
        for names, part in zip(OLD_AND_NEW, parts, strict=True):
            state |= {f"{names[new].format(block)}.{kind}": value for kind, value in part.items()}
    state = {f"{prefix}{name}": value for name, value in state.items()} | beside("classifier.weight classifier.bias")
    config = {"model_type": "vit", "num_attention_heads": 1, "image_size": SIDE, "layer_norm_eps": 1e-12}
    (tmp_path / "config.json").write_text(json.dumps(config))
    if file.endswith("bin"):
        torch.save(state, tmp_path / file)
    else:
        safetensors.torch.save_file(state, tmp_path / file)
    start = read_start(str(tmp_path))
    with torch.no_grad():
        assert torch.allclose(start.backbone.forward_pooled(images(), pool="cls"), model(images()), rtol=0, atol=1e-6)
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "swin"}))
    with pytest.raises(UserError, match="is a swin of transformers; read are vit and vit_mae"):
        read_start(str(tmp_path))


def test_names_of_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    create: Any = timm.create_model

    def made(name: str, *, pretrained: bool = False, **args: Any) -> nn.Module:
        torch.manual_seed(4)
        return create(name, pretrained=False, **args)

    monkeypatch.setattr(hub, "ask_hub", lambda question: None)
    monkeypatch.setattr(timm, "create_model", made)
    start = read_start("test_vit.r160_in1k")
    assert (start.size, start.pool, start.about["layout"]) == (160, "cls", "timm")
    assert start.folder.parent.name.startswith("test_vit.r160_in1k-")
    smaller = read_start("test_vit.r160_in1k@64")
    assert (smaller.size, smaller.backbone.img_size) == (64, 64)
    assert smaller.folder != start.folder and "64px" in str(smaller.folder)
    assert read_start("test_resnet.r160_in1k").pool == "mean"
    behind = read_start("test_vit2.r160_in1k")
    assert behind.pool == "mean"
    with torch.no_grad():
        expected = made("test_vit2", num_classes=0).eval()(images(side=160))
        found = behind.backbone.eval().forward_pooled(images(side=160), pool="mean")
    assert torch.allclose(found, expected, rtol=0, atol=1e-5)
    with pytest.raises(UserError, match="test_vit3 pools by attention, which is not read"):
        read_start("test_vit3.r160_in1k")


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(
    ("args", "pool"),
    [({}, "cls"), ({"global_pool": "avg"}, "mean"), ({"global_pool": "avg", "fc_norm": False}, "mean")],
)
def test_folders_that_timm_saved_pool_as_timm_does(args: dict[str, Any], pool: str, told: bool, tmp_path: Path) -> None:
    name, sizes = ("vit_small_patch16_224", ARGS) if told else ("test_vit", {})  # the latter has these by itself
    model: Any = timm.create_model(name, **{**sizes, "num_classes": 2, **args}).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    timm.models.save_for_hf(model, str(tmp_path), safe_serialization=True)
    config = json.loads((tmp_path / "config.json").read_text())
    config["model_args"] = {**sizes, **args} if told else None
    (tmp_path / "config.json").write_text(json.dumps(config))
    start = load_backbone(str(tmp_path))
    assert start.pool == pool
    pixels = images(side=start.size)
    with torch.no_grad():
        expected = model.forward_head(model.forward_features(pixels), pre_logits=True)
        found = start.backbone.eval().forward_pooled(pixels, pool=start.pool)
    assert torch.allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("pool", "how"), [("map", "attention"), ("max", "max of all tokens")])
def test_folders_that_pool_otherwise_are_refused(pool: str, how: str, tmp_path: Path) -> None:
    args = {**ARGS, "global_pool": pool}
    model = timm.create_model("vit_small_patch16_224", **args)
    timm.models.save_for_hf(model, str(tmp_path), model_args=args, safe_serialization=True)
    with pytest.raises(UserError, match=f"vit_small_patch16_224 pools by {how}, which is not read"):
        load_backbone(str(tmp_path))


def test_names_that_timm_does_not_know_or_cannot_have(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"nor a timm model with pretrained weights; did you mean test_vit.r160_in1k"):
        read_start("test_vit.r160_in2k")

    def unreachable(*_: Any, **__: Any) -> None:
        raise OSError("no route")

    assert all(find_network(name).kind == "timm name" for name in timm.list_pretrained())
    monkeypatch.setattr(hub, "ask_hub", lambda question: None)
    monkeypatch.setattr(timm, "create_model", unreachable)
    with pytest.raises(
        UserError, match=r"--model.weights: test_vit.r160_in1k could not be downloaded and is not in the"
    ):
        read_start("test_vit.r160_in1k", "--model.weights")


def some_images(channels: int, bits: int = 8, side: int = SIDE) -> ImageSet:
    pixels = np.random.default_rng(1).integers(0, 2**bits, (6, channels, side, side))
    rows = ArrayRows(pixels.astype(np.uint8 if bits == 8 else np.uint16), "made")
    return ImageSet("made", rows, np.arange(6), Format(channels, bits), Sizes((side, side), side), "f")


def test_channels_are_adapted_and_pixels_standardised_by_whom_they_are_of(tmp_path: Path) -> None:
    start = read_start(str(save(tmp_path / "dino.pth", network().state_dict())))
    weights = {}
    for channels in (1, 2, 3, 7):
        found = for_images(start, some_images(channels))
        weights[channels] = found.backbone.timm_state()["patch_embed.proj.weight"]
        assert found.backbone.channels == channels
        assert found.backbone.forward_pooled(images(channels), pool="cls").shape == (3, WIDTH)
        assert found.scale == (PHOTOGRAPHS if channels == 3 else measure_scale(some_images(channels)))
    assert torch.equal(weights[1], weights[3].sum(dim=1, keepdim=True))
    assert torch.allclose(weights[7][:, :6], weights[3].repeat(1, 2, 1, 1) * 3 / 7)
    assert for_images(start, some_images(3)).backbone is start.backbone
    assert for_images(start, some_images(3, bits=16)).scale == measure_scale(some_images(3, bits=16))
    resnet = make_backbone("test_resnet", {"in_chans": 3}, img_size=32)
    grey = adapt(resnet, channels=1).timm_state()[
        "conv1.0.weight" if "conv1.0.weight" in resnet.timm_state() else "conv1.weight"
    ]
    assert grey.shape[1] == 1


def test_input_and_patches_are_resampled(tmp_path: Path) -> None:
    path = save(tmp_path / "dino.pth", network().state_dict())
    start = read_start(str(path))
    found = for_images(start, some_images(3, side=48), img_size=48, patch_size=8)
    assert (found.size, found.backbone.img_size) == (48, 48)
    assert found.backbone.timm_state()["pos_embed"].shape == (1, 37, WIDTH)
    same = adapt(start.backbone, img_size=48, patch_size=8)
    with torch.no_grad():
        two = [net.eval().forward_pooled(images(side=48), pool="cls") for net in (found.backbone, same)]
    assert torch.equal(*two)
    with pytest.raises(UserError, match=r"--model.img_size 30 is not a multiple of --model.patch_size 4"):
        read_start(f"{path}@30")


def test_what_is_missing_or_left_over_is_named(tmp_path: Path) -> None:
    state = dict(network().state_dict())
    state["blocks.1.attn.qkv.wieght"] = state.pop("blocks.1.attn.qkv.weight")
    state["norm.bias"] = torch.randn(3)
    with pytest.raises(UserError) as told:
        read_start(str(save(tmp_path / "dino.pth", state)))
    assert "it lacks blocks.1.attn.qkv.weight; did you mean blocks.1.attn.qkv.wieght?" in str(told.value)
    assert "it has beside it blocks.1.attn.qkv.wieght; it has in other shapes norm.bias (3,) for (64,)" in str(
        told.value
    )
    assert "\n" not in str(told.value)
    backbone = make_backbone("vit_small_patch16_224", {k: v for k, v in ARGS.items() if k != "num_classes"})
    whole = Network("ViT", "x", {}, SIDE, {**backbone.timm_state()}, ())
    check_whole(whole, backbone, "it")


@pytest.mark.parametrize("name", ["vit_small_patch16_224", "vit_small_patch14_reg4_dinov2", "vit_small_patch16_dinov3"])
def test_tensors_of_odd_shapes_end_in_one_line(name: str, tmp_path: Path) -> None:
    more = {"num_reg_tokens": 4, "patch_size": 16} if "dinov3" in name else {}
    state = theirs(name, dict(network(name, depth=1, **more).state_dict()))
    tokens = ("cls_token", "pos_embed", "register_tokens", "storage_tokens")
    for key in {*tokens, "patch_embed.proj.weight", "blocks.0.mlp.fc1.weight"} & {*state}:
        for odd in (torch.ones(()), torch.ones(1, 5, 7)):
            with pytest.raises(UserError) as told:
                read_start(str(save(tmp_path / "odd.pth", {**state, key: odd})))
            assert "\n" not in str(told.value)


class Runs:
    """What a pickle would run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("ran"),))


def test_no_code_of_strangers_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = save(tmp_path / "evil.pth", {"model": network().state_dict(), "args": Runs()})
    with pytest.raises(
        UserError, match=r"evil.pth is not read: it holds Python's .* reading that could run code"
    ) as told:
        read_start(str(path))
    assert "\n" not in str(told.value)
    plain = tmp_path / "plain.pth"
    plain.write_bytes(pickle.dumps({"model": Runs()}))  # of the pickle protocol of today, which torch does not write
    with pytest.raises(UserError, match=r"plain.pth is not read: it is a pickle .* reading that could run code"):
        read_start(str(plain))
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"conv1.weight": torch.ones(2)}, "weights of no known layout"),
        ({"epoch": 3, "loss": 0.1}, "holds no weights by name, but epoch, loss"),
        ([1, 2], "holds a list and no weights"),
        ({"patch_embed.proj.weight": torch.ones(60, 3, 4, 4)}, "lacks cls_token, blocks.0.norm1.weight"),
        ({"patch_embed.proj.weight": torch.ones(60, 3, 4, 4), "cls_token": torch.ones(1, 1, 60),
          "blocks.0.norm1.weight": torch.ones(60)}, "is 60 wide, and no file of weights tells the number of heads"),
        ({"patch_embed.proj.weight": torch.ones(64, 3, 4, 4), "cls_token": torch.ones(1, 1, 64),
          "blocks.0.norm1.weight": torch.ones(64), "pos_embed": torch.ones(1, 8, 64)}, "7 patches, which"),
        ({"patch_embed.proj.weight": torch.ones(64, 3, 4, 4), "cls_token": torch.ones(1, 1, 64),
          "blocks.0.norm1.weight": torch.ones(64), "blocks.200000.norm1.weight": torch.ones(64)},
         "has 2 blocks and lacks blocks.1"),
        (b"", "cannot be read as weights"),
    ],
)  # fmt: skip
def test_files_that_are_no_weights(content: Any, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "file.pth"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(UserError) as told:
        read_start(str(path))
    assert expected in str(told.value)
    assert "\n" not in str(told.value)


def test_a_file_that_holds_itself_or_parts_of_parts(tmp_path: Path) -> None:
    model = network()
    content: dict[str, Any] = {}
    content["model"] = content
    with pytest.raises(UserError, match="holds no weights by name, but model"):
        read_start(str(save(tmp_path / "cycle.pth", content)))
    check(save(tmp_path / "beside.pth", {"model": model.state_dict(), "loss": torch.tensor(1.0)}), model)


@pytest.mark.parametrize("prefix", ["_orig_mod.module.", "module.module.", "teacher.backbone.", "teacher.module."])
def test_wrappers_of_wrappers(prefix: str, tmp_path: Path) -> None:
    model = network()
    state = {f"{prefix}{name}": value for name, value in model.state_dict().items()}
    student = {name.replace("teacher", "student"): 0 * value for name, value in state.items() if "teacher" in name}
    check(save(tmp_path / "wrapped.pth", {"state_dict": student | state}), model)


@pytest.mark.filterwarnings("ignore:Validating sparse")
def test_numbers_that_are_no_weights(tmp_path: Path) -> None:
    state = network().state_dict()
    for change, expected in (
        (lambda value: value.to(torch.int8), r"has as another kind of numbers cls_token \(int8\), "),
        (lambda value: value.to(torch.complex64), r"has as another kind of numbers cls_token \(complex64\), "),
        (lambda value: value.to_sparse(), "cls_token is sparse, quantised or without numbers; save the weights"),
    ):
        path = save(tmp_path / "odd.pth", {name: change(value) for name, value in state.items()})
        with pytest.raises(UserError, match=expected):
            read_start(str(path))


@pytest.mark.parametrize("legacy", [False, True])
def test_half_a_file_is_told_in_one_line(legacy: bool, tmp_path: Path) -> None:
    path = tmp_path / "cut.pth"
    torch.save({"model": {"a": torch.ones(3)}}, path, _use_new_zipfile_serialization=not legacy)
    whole = path.read_bytes()
    for length in range(0, len(whole), 1 + len(whole) // 200):
        path.write_bytes(whole[:length])
        with pytest.raises(
            UserError, match=r"cut.pth (cannot be read as weights.*; download|is not read: it holds Python's \w)"
        ):
            read_state(path)


def test_a_file_is_kept_once_as_a_folder_of_timm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = network("vit_small_patch14_dinov2")
    save(tmp_path / "official.pth", {**model.state_dict(), "mask_token": torch.ones(1, WIDTH)})
    start = load_start("official.pth")
    assert start.folder.parent.parent == Path("runs/released")
    assert [path.name for path in start.folder.parent.iterdir()] == ["backbone"]
    again = load_backbone(str(start.folder.parent))
    assert again.weights_hash == start.weights_hash and again.about["layout"] == "DINOv2"
    with torch.no_grad():
        assert torch.allclose(
            again.backbone.eval().forward_pooled(images(), pool=again.pool), model(images()), atol=1e-6
        )
        plain = timm.create_model(f"local-dir:{start.folder}", pretrained=True).eval()
        assert torch.allclose(plain(images()), model(images()), atol=1e-6)
    written = (start.folder / "config.json").stat().st_mtime_ns
    assert load_start("official.pth").folder == start.folder
    assert (start.folder / "config.json").stat().st_mtime_ns == written
