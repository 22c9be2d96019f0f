"""A folder's config.json is only a description: nothing it says opens another file, the network, or all memory."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from ssl_vit.configs import ResolvedModel
from ssl_vit.core.errors import UserError
from ssl_vit.data.scale import PixelScale
from ssl_vit.exports.timm_folder import export_backbone, load_backbone
from ssl_vit.models.build import build_backbone
from ssl_vit.released.huggingface import read_transformers


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    net = build_backbone(ResolvedModel("vit_small_patch16_224", 24, 4, 32, 2, 2, "sincos", "mean"), 2)
    export_backbone(net, tmp_path / "net", PixelScale((0.4, 0.5), (0.2, 0.3), 16), "mean", {"positions": "sincos"})
    return tmp_path / "net"


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*given: Any) -> None:
        raise AssertionError(f"the network was opened: {given}")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)


def changed(folder: Path, path: str, value: Any) -> None:
    """config.json with another value at a dotted place."""
    config = json.loads((folder / "config.json").read_text())
    *groups, last = path.split(".")
    place = config
    for group in groups:
        place = place[group]
    place[last] = value
    (folder / "config.json").write_text(json.dumps(config))


HOSTILE: list[tuple[str, Any, str]] = [
    ("architecture", "hf-hub:somebody/network", "timm's name of a network"),
    ("architecture", "local-dir:/etc", "timm's name of a network"),
    ("architecture", "../../etc/passwd", "timm's name of a network"),
    ("architecture", ["vit_small_patch16_224"], "timm's name of a network"),
    ("architecture", None, "timm's name of a network"),
    ("architecture", "vit_small_patch16_225", "is none of timm's; did you mean vit_small_patch16_224"),
    *((f"model_args.{name}", "/etc/passwd", "is no argument of")
      for name in ("checkpoint_path", "pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir",
                   "kwargs_filter", "model_cls", "features_only", "device", "dtype", "made_up")),
    ("model_args", [1, 2], "arguments by name"),
    ("model_args.depth", 10**9, r"more than the \d+ weights can fill"),
    ("model_args.depth", "12", "cannot build"),
    ("model_args.depth", -3, "cannot build|do not fit"),
    ("model_args.embed_dim", 10**9, "more than"),
    ("model_args.embed_dim", 1 << 19, r"has [\d,]+ numbers, and the file"),
    ("model_args.embed_dim", 33, "cannot build"),
    ("model_args.img_size", [1 << 20, 1 << 20], r"has [\d,]+ numbers, and the file|cannot build"),
    ("model_args.norm_layer", "a.path/../to", "is no number, word or list of them"),
    ("model_args.norm_layer", {"a": {"b": {"c": {"d": {"e": 1}}}}}, "is no number, word or list of them"),
    ("model_args.mlp_ratio", [1] * 2000, "is no number, word or list of them"),
    ("model_args.mlp_ratio", float("nan"), "is no number, word or list of them"),
    ("pretrained_cfg", [], "pretrained_cfg in config.json must be values by name"),
    ("pretrained_cfg.mean", "half", "a list of numbers"),
    ("pretrained_cfg.mean", [0.5, float("inf")], "a list of numbers"),
    ("pretrained_cfg.std", [0.5, 0], "a list of numbers"),
    ("pretrained_cfg.std", [0.5], "as many numbers as mean"),
    ("pretrained_cfg.std", [0.5] * 10_000, "a list of numbers"),
    ("pretrained_cfg.input_size", [2, 24], "channels, height and width"),
    ("pretrained_cfg.input_size", [2, 24, 10**9], "channels, height and width"),
    ("ssl_vit", "yes", "must be values by name"),
    ("ssl_vit.bits", 7, "must be one of 8, 16"),
    ("ssl_vit.bits", [16], "must be one of 8, 16"),
    ("ssl_vit.pool", "__import__", "must be one of cls, mean"),
    ("ssl_vit.init", "os.system", "must be one of xavier"),
    ("ssl_vit.positions", 3, "must be text"),
    ("ssl_vit.data", {"path": "digits", "rm": "-rf"}, "must be options of images"),
    ("ssl_vit.data", {"path": {"a": "b"}}, "must be options of images"),
    ("ssl_vit.classifier", {"names": [], "kind": "class", "pool": "cls"}, "a list of names"),
    ("ssl_vit.classifier", {"names": ["a"], "kind": "eval", "pool": "cls"}, "what labels are"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "words"), HOSTILE, ids=[f"{p}={str(v)[:20]}" for p, v, _ in HOSTILE])
def test_a_description_that_asks_for_more_is_refused(folder: Path, path: str, value: Any, words: str) -> None:
    changed(folder, path, value)
    with pytest.raises(UserError, match=words) as caught:
        load_backbone(str(folder))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[]", b"null", b"[" * 100_000, b'{"architecture": NaN}'])
def test_a_config_that_is_none_is_refused(folder: Path, content: bytes) -> None:
    (folder / "config.json").write_bytes(content)
    with pytest.raises(UserError, match=r"config\.json"):
        load_backbone(str(folder))


def test_nothing_is_fetched_for_a_folder(folder: Path) -> None:
    """Sockets are closed for all tests here: what is sound loads without them."""
    assert load_backbone(str(folder)).backbone.channels == 2


@pytest.mark.parametrize("name", ["resnet18", "swin_tiny_patch4_window7_224", "efficientnet_b0", "mixer_s32_224"])
def test_what_is_exported_may_be_loaded(tmp_path: Path, name: str) -> None:
    """The list of what may be given holds all that exports of other families write."""
    side = 64 if name in ("resnet18", "efficientnet_b0") else timm.create_model(name).pretrained_cfg["input_size"][-1]
    net = build_backbone(ResolvedModel(name, side, None, None, None, None, None, "mean"), 3)
    export_backbone(net, tmp_path / "net", PixelScale((0.5,) * 3, (0.5,) * 3, 8), "mean", {})
    found = load_backbone(str(tmp_path / "net"))
    assert (found.backbone.architecture, found.size) == (name, side)


@pytest.mark.parametrize(
    "change",
    [{"model_type": ["vit"]}, {"model_type": {"a": 1}}, {"num_attention_heads": "twelve"}, {"num_attention_heads": 0},
     {"image_size": -1}, {"image_size": [1]}, {"image_size": 1 << 40}, {"layer_norm_eps": "small"}],
)  # fmt: skip
def test_a_config_of_transformers_with_other_values_is_told(tmp_path: Path, change: dict[str, Any]) -> None:
    transformers: Any = pytest.importorskip("transformers")
    small: Callable[..., Any] = transformers.ViTConfig
    net = transformers.ViTModel(
        small(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, layer_norm_eps=1e-6),
        add_pooling_layer=False,
    )
    net.save_pretrained(tmp_path)
    assert read_transformers(tmp_path).size == 224
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(UserError):
        read_transformers(tmp_path)
