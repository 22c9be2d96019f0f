"""Folders of transformers: ViT and ViTMAE, as saved by its versions before 5 and since."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import torch

from ssl_vit.core.errors import UserError
from ssl_vit.core.reading import loads, read_object
from ssl_vit.data.scale import PixelScale
from ssl_vit.released.files import State, read_state
from ssl_vit.released.layouts import Network, beginnings, shapes_of, vit_args

_KINDS = {"vit": "ViT", "vit_mae": "MAE"}
_FILES = ("model.safetensors", "pytorch_model.bin")
_BESIDE = ("pooler.", "classifier.", "decoder.", "embeddings.mask_token")
"""Heads, MAE's decoder, SimMIM's mask token."""
_NAMES = (
    (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"^embeddings\.cls_token$", "cls_token"),
    (r"^embeddings\.position_embeddings$", "pos_embed"),
    (r"^(encoder\.layer|layers)\.", "blocks."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.attention\.attention\.(query|key|value)\.", r".attn.\1."),
    (r"\.attention\.([qkv])_proj\.", r".attn.\1."),
    (r"\.attention\.(output\.dense|o_proj)\.", ".attn.proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"\.output\.dense\.", ".mlp.fc2."),
    (r"^layernorm\.", "norm."),
)
"""Names there and timm's, in this order."""
_QKV = re.compile(r"(.*\.attn\.)(query|key|value|q|k|v)\.(weight|bias)")
_LARGEST_EPS = 1e-5
"""Of layer norms: below it, differences vanish beside activations near 1; timm's 1e-6 is used."""


def read_transformers(folder: Path) -> Network:
    """A folder of ``save_pretrained`` as timm's network.

    Args:
        folder: With config.json and the weights.

    Raises:
        UserError: For other networks than ViT and ViTMAE, or files that are missing or cannot be read.
    """
    config = read_object(folder / "config.json", "download or copy it again")
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise UserError(
            f"{folder} is a {kind} of transformers; read are {' and '.join(_KINDS)}. Give its authors' file, or timm's "
            "name of the same weights"
        )
    file = next((folder / name for name in _FILES if (folder / name).is_file()), None)
    if file is None:
        raise UserError(f"{folder} holds no {' and no '.join(_FILES)}; weights in several parts are not read")
    eps = config.get("layer_norm_eps", 0)
    if config.get("hidden_act", "gelu") != "gelu" or not isinstance(eps, int | float) or eps > _LARGEST_EPS:
        raise UserError(
            f"{folder}: timm's ViT has gelu and layer norms of 1e-6, and config.json says {config.get('hidden_act')} "
            f"and {config.get('layer_norm_eps')}; such a network is not read"
        )
    whole = {re.sub(r"^vit\.", "", name): value for name, value in read_state(file).items()}
    left = [name for name in whole if name.startswith(_BESIDE)]
    state = _merged({_renamed(name): value for name, value in whole.items() if name not in left})
    sizes, side = shapes_of(state, str(folder)), _side(config.get("image_size", 224), folder)
    heads = config.get("num_attention_heads", 12)
    if not isinstance(heads, int) or not 0 < heads <= 1024:
        raise UserError(f"{folder}: num_attention_heads in config.json must be a number of heads, not {heads}")
    return Network(
        _KINDS[kind], "vit_base_patch16_224", vit_args(state, sizes, side, heads), side, state, beginnings(left),
        "sincos" if kind == "vit_mae" else "learnable", scale=_scale(folder),
    )  # fmt: skip


def _renamed(name: str) -> str:
    for pattern, instead in _NAMES:
        name = re.sub(pattern, instead, name)
    return name


def _merged(state: State) -> State:
    """Queries, keys and values as one matrix, in this order."""
    merged: State = {}
    parts: dict[str, dict[str, torch.Tensor]] = {}
    for name, value in state.items():
        if found := _QKV.fullmatch(name):
            parts.setdefault(f"{found[1]}qkv.{found[3]}", {})[found[2][0]] = value
        else:
            merged[name] = value
    for name, three in parts.items():
        if len(three) == 3:
            merged[name] = torch.cat([three[part] for part in "qkv"])
    return merged


def _side(size: Any, folder: Path) -> int:
    sides: list[Any] = size if isinstance(size, list) and len(size) == 2 else [size, size]
    if not all(isinstance(side, int) and 0 < side <= 1 << 16 for side in sides):
        raise UserError(f"{folder}: image_size in config.json must be a number of pixels, not {size}")
    if sides[0] != sides[1]:
        raise UserError(f"{folder} reads images of {sides[0]} x {sides[1]} px; only square inputs are read")
    return sides[0]


def _scale(folder: Path) -> PixelScale | None:
    """What preprocessor_config.json says of pixels; None where it says nothing, or something else than a scale."""
    try:
        told = loads((folder / "preprocessor_config.json").read_bytes())
        scale = PixelScale(tuple(map(float, told["image_mean"])), tuple(map(float, told["image_std"])), 8)
        usual = math.isclose(told.get("rescale_factor", 1 / 255), 1 / 255, rel_tol=1e-3)
        applied = told.get("do_normalize", True) is True and told.get("do_rescale", True) is True
        sound = all(map(math.isfinite, scale.mean)) and all(0 < one < math.inf for one in scale.std)
        return scale if usual and applied and sound and len(scale.mean) == len(scale.std) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
