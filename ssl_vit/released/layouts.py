"""Layouts in which papers released their weights, in one table: how each is known, and what it is for timm.

Names, shapes and the order inside tensors are all that differs; timm has the networks, and turns DINOv2's and DINOv3's
names into its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

import timm
import torch
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models import eva, vision_transformer
from torch import Tensor

from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.data.scale import PixelScale
from ssl_vit.models.positions import sincos_2d
from ssl_vit.released.files import State

PHOTOGRAPHS = PixelScale(tuple(IMAGENET_DEFAULT_MEAN), tuple(IMAGENET_DEFAULT_STD), 8)
"""Statistics of ImageNet-1k, by which MAE, DINO, DINOv2 and DINOv3 standardise."""


class Network(NamedTuple):
    """Released weights as timm's network."""

    layout: str
    """Whose: ``DINOv2``."""
    architecture: str
    """timm's name of it."""
    args: dict[str, Any]
    """What timm's create_model needs besides."""
    size: int
    """Side of its input in pixels."""
    state: State
    left_out: tuple[str, ...]
    """What the file holds beside the network, by the first part of its names."""
    positions: Literal["sincos", "learnable"] = "learnable"
    pool: Literal["cls", "mean"] | None = "cls"
    """What represents an image; None for what timm's network makes of it."""
    scale: PixelScale | None = PHOTOGRAPHS
    """By which pixels are standardised; None where nobody says it."""


class Layout(NamedTuple):
    """One way of naming weights."""

    known_by: str
    """A name that no other layout above it has."""
    convert: Callable[[State, str], Network]
    beside: tuple[str, ...]
    """How names begin that belong to no backbone: decoders, heads, mask tokens, fixed tables."""


_SIZES = {192: ("tiny", 3), 384: ("small", 6), 768: ("base", 12), 1024: ("large", 16), 1280: ("huge", 16),
          1536: ("giant", 24)}  # fmt: skip
"""By width: timm's word, and heads, which no file tells. Of other widths heads are 64 wide."""
_BLOCK = re.compile(r"blocks\.(\d+)\.")


def converted(state: State, given: str) -> Network:
    """Weights of a file as timm's network.

    Args:
        state: As ``files.read_state`` gives it.
        given: What the person typed, for errors.

    Raises:
        UserError: For weights of no layout in the table, or of a network that its names do not tell.
    """
    if any(name.startswith("backbone.") for name in state):  # beside heads, as DINO's programs save them
        heads = {name: value for name, value in state.items() if not name.startswith("backbone.")}
        state = {name.removeprefix("backbone."): value for name, value in state.items() if name not in heads}
    else:
        heads = {}
    layout = next((one for one in LAYOUTS if one.known_by in state), None)
    if layout is None:
        close = did_you_mean("patch_embed.proj.weight", state)
        raise UserError(
            f"{given} has weights of no known layout (MAE, DINO, DINOv2, DINOv3, timm's ViT): its names begin with "
            f"{', '.join([*state][:5])}{close}; a folder that timm saved, or a ViT folder of transformers, works too"
        )
    left = {name for name in state if name.startswith(layout.beside) or name.endswith(".bias_mask")}
    network = layout.convert({name: value for name, value in state.items() if name not in left}, given)
    if any(name.startswith("decoder_") for name in left):
        network = network._replace(layout="MAE", positions="sincos")
    return network._replace(left_out=beginnings([*heads, *left]))


def beginnings(names: Iterable[str]) -> tuple[str, ...]:
    """First parts of names, each once.

    Args:
        names: Of tensors.
    """
    return tuple(sorted({name.partition(".")[0] for name in names}))


def shapes_of(state: Mapping[str, Tensor], given: str) -> dict[str, int]:
    """Width, depth, patch, channels and mlp width of a transformer.

    Args:
        state: By timm's names.
        given: What the person typed, for errors.

    Raises:
        UserError: Where one of the tensors is missing that tell them.
    """
    needed = ("cls_token", "patch_embed.proj.weight", "blocks.0.norm1.weight")
    if missing := [name for name in needed if name not in state]:
        close = did_you_mean(missing[0], state)
        raise UserError(f"{given} lacks {', '.join(missing)}, which tell the network's size{close}")
    projection = state["patch_embed.proj.weight"]
    if projection.ndim != 4 or projection.shape[2] != projection.shape[3] or not projection.numel():
        raise UserError(f"{given}: patch_embed.proj.weight is {tuple(projection.shape)}; expected D, C, P, P")
    blocks = {found[1] for found in map(_BLOCK.match, state) if found}
    depth = len(blocks)
    if missing := sorted({str(i) for i in range(depth)} - blocks, key=int):
        raise UserError(f"{given} has {depth} blocks and lacks blocks.{missing[0]}; they are numbered from 0 on")
    width, channels, patch, _ = projection.shape
    return {"width": width, "depth": depth, "patch": patch, "channels": channels}


def heads_of(width: int, given: str) -> int:
    """Attention heads of a published network, which do not stand in a file of weights.

    Args:
        width: D.
        given: What the person typed, for errors.

    Raises:
        UserError: For a width that no rule of published networks fits.
    """
    if width not in _SIZES and width % 64:
        raise UserError(
            f"{given} is {width} wide, and no file of weights tells the number of heads; save the network by timm or "
            "transformers, whose config.json says it"
        )
    return _SIZES[width][1] if width in _SIZES else width // 64


def side_of(positions: Tensor, prefix: int, patch: int, given: str) -> int:
    """Side of the square input in pixels that a table of positions was made for.

    Args:
        positions: 1 L D.
        prefix: Rows that belong to no patch.
        patch: Side of one in pixels.
        given: What the person typed, for errors.

    Raises:
        UserError: Where the patches are no square.
    """
    count = positions.shape[1] - prefix
    side = round(max(count, 0) ** 0.5)
    if not side or side * side != count:
        raise UserError(f"{given} has positions of {count} patches, which are no square; only square inputs are read")
    return side * patch


def _vit(state: State, given: str) -> Network:
    """MAE, DINO, DeiT and others: names are timm's."""
    if "fc_norm.weight" in state and "norm.weight" not in state:  # fine-tuned on the mean of patches
        found = _vit({re.sub("^fc_norm", "norm", name): value for name, value in state.items()}, given)
        args = {**found.args, "global_pool": "avg", "fc_norm": True}
        return found._replace(args=args, state=state, pool="mean")
    sizes = shapes_of(state, given)
    width, patch = sizes["width"], sizes["patch"]
    word = _SIZES.get(width, ("small", 0))[0].replace("giant", "small")
    side = side_of(state["pos_embed"], 1, patch, given) if "pos_embed" in state else patch
    args = vit_args(state, sizes, side, heads_of(width, given))
    fixed = "pos_embed" in state and _is_sincos(state["pos_embed"], side // patch)
    name = f"vit_{word}_patch{14 if word == 'huge' else 16}_224"
    return Network("MAE" if fixed else "ViT", name, args, side, state, (), "sincos" if fixed else "learnable")


def vit_args(state: Mapping[str, Tensor], sizes: Mapping[str, int], side: int, heads: int) -> dict[str, Any]:
    """Arguments for timm's plain ViT.

    Args:
        state: By timm's names.
        sizes: ``shapes_of`` it.
        side: Of the input in pixels.
        heads: Of attention.
    """
    hidden = state["blocks.0.mlp.fc1.weight"].shape[0] if "blocks.0.mlp.fc1.weight" in state else 4 * sizes["width"]
    args: dict[str, Any] = {
        "img_size": side, "patch_size": sizes["patch"], "in_chans": sizes["channels"], "embed_dim": sizes["width"],
        "depth": sizes["depth"], "num_heads": heads, "global_pool": "token",
    }  # fmt: skip
    args |= {} if hidden == 4 * sizes["width"] else {"mlp_ratio": hidden / sizes["width"]}
    return args | ({} if "blocks.0.attn.qkv.bias" in state else {"qkv_bias": False})


def _is_sincos(positions: Tensor, side: int) -> bool:
    """Whether a table is MAE's fixed one, whose class row is zero."""
    width = positions.shape[2]
    if width % 4 or positions[0, 0].any():
        return False
    table = sincos_2d(width, (side, side)).to(torch.float32)
    return torch.allclose(positions[0, 1:].float(), table, rtol=0, atol=1e-4)


def _dinov2(state: State, given: str) -> Network:
    """DINOv2, with registers or without; training in several parts numbers a block's part before the block."""
    state = {re.sub(r"^blocks\.\d+\.(\d+)\.", r"blocks.\1.", name): value for name, value in state.items()}
    sizes = shapes_of(state, given)
    gated = "blocks.0.mlp.w12.weight" in state
    word = "giant" if gated else _SIZES.get(sizes["width"], ("small", 0))[0].replace("tiny", "small")
    word = word if word in ("small", "base", "large", "giant") else "small"
    registers = state["register_tokens"].shape[1] if "register_tokens" in state else 0
    name = f"vit_{word}_patch14{'_reg4' if registers else ''}_dinov2"
    if "pos_embed" not in state:
        raise UserError(f"{given} lacks pos_embed, the positions of its patches")
    side = side_of(state["pos_embed"], 1, sizes["patch"], given)
    args = vit_args(state, sizes, side, heads_of(sizes["width"], given))
    args |= {"reg_tokens": registers} if registers else {}
    args |= {"mlp_ratio": state["blocks.0.mlp.w12.weight"].shape[0] / sizes["width"]} if gated else {}
    marked = {**state, "mask_token": torch.empty(0)}  # by which timm knows the layout
    return Network("DINOv2", name, args, side, _by_timm(vision_transformer, marked, name, args), ())


def _dinov3(state: State, given: str) -> Network:
    """DINOv3: positions are rotations, so any multiple of a patch is read; 256 px are timm's default."""
    sizes = shapes_of(state, given)
    width, patch = sizes["width"], sizes["patch"]
    gated, biased = "blocks.0.mlp.w1.weight" in state, "blocks.0.attn.qkv.bias" in state
    word = _SIZES.get(width, ("small", 0))[0]
    word = "small_plus" if gated else word if word in ("small", "base", "large") else "small"
    hidden = state.get("blocks.0.mlp.w1.weight", state.get("blocks.0.mlp.fc1.weight"))
    periods = state.pop("rope_embed.periods", None)
    name, side = f"vit_{word}_patch16_dinov3{'_qkvb' if biased else ''}", max(1, 256 // patch) * patch
    args: dict[str, Any] = {
        "patch_size": patch, "in_chans": sizes["channels"], "embed_dim": width,
        "depth": sizes["depth"], "num_heads": _rotated(periods, width, given),
        "num_reg_tokens": state["storage_tokens"].shape[1], "global_pool": "token",
        **({} if hidden is None else {"mlp_ratio": hidden.shape[0] / width}),
    }  # fmt: skip
    return Network("DINOv3", name, args, side, _by_timm(eva, state, name, args), (), pool="mean")


def _rotated(periods: Tensor | None, width: int, given: str) -> int:
    """Heads, which the periods of rotation tell; others than timm's are refused."""
    if periods is None:
        return width // 64 if width % 64 == 0 else heads_of(width, given)
    count = len(periods)
    expected = 100.0 ** (torch.arange(count, dtype=torch.float32) / count)
    if width % (4 * count) or not torch.allclose(periods.float(), expected, rtol=0.02, atol=0):
        raise UserError(f"{given} has rotary positions of other periods than DINOv3's, which timm cannot compute")
    return width // (4 * count)


def _by_timm(family: Any, state: State, name: str, args: Mapping[str, Any]) -> State:
    """Renamed by timm's own rules for a family; nothing changes its size here."""
    with torch.device("meta"):
        model = timm.create_model(name, pretrained=False, num_classes=0, **args)
    return family.checkpoint_filter_fn(dict(state), model)


_HEADS = ("head.", "dino_head.", "ibot_head.")
LAYOUTS = (
    Layout("storage_tokens", _dinov3, (*_HEADS, "mask_token", "local_cls_norm.")),
    Layout("register_tokens", _dinov2, (*_HEADS, "mask_token")),
    Layout("blocks.0.ls1.gamma", _dinov2, (*_HEADS, "mask_token")),
    Layout("blocks.0.0.ls1.gamma", _dinov2, (*_HEADS, "mask_token")),
    Layout("patch_embed.proj.weight", _vit, (*_HEADS, "mask_token", "decoder_")),
)
"""The first whose name is there."""
