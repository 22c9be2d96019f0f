"""Networks by short name, and every size of one that the options leave open."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from ssl_vit.configs.model import ModelConfig, ResolvedModel
from ssl_vit.configs.presets import Preset, preset_for
from ssl_vit.configs.settled import settle
from ssl_vit.core.errors import UserError
from ssl_vit.core.text import aligned, note


@dataclass(frozen=True)
class Network:
    """A size of Vision Transformer."""

    name: str
    """Short name for --model.name; image and patch size then come from the images' preset."""
    timm_name: str
    width: int
    depth: int
    heads: int
    source: str


_PAPER = "He et al. 2022 (arXiv 2111.06377), section 4"

_NETWORKS = [
    Network(
        "vit_micro", "vit_tiny_patch16_224", 64, 4, 4,
        "measured on digits, where MAE trains in about a minute on two CPU cores",
    ),
    Network("vit_mini", "vit_tiny_patch16_224", 128, 6, 4, "sized for 32 px on a CPU"),
    Network("vit_tiny", "vit_tiny_patch16_224", 192, 12, 3, "DeiT's sizes"),
    Network("vit_small", "vit_small_patch16_224", 384, 12, 6, "DeiT's sizes"),
    Network("vit_base", "vit_base_patch16_224", 768, 12, 12, _PAPER),
    Network("vit_large", "vit_large_patch16_224", 1024, 24, 16, _PAPER),
    Network("vit_huge", "vit_huge_patch14_224", 1280, 32, 16, _PAPER),
]  # fmt: skip
NETWORKS = {network.name: network for network in _NETWORKS}
"""By short name, narrowest first."""


@dataclass(frozen=True)
class Family:
    """A network of another family, about as large and as costly as the Vision Transformer of the same size."""

    name: str
    """Short name for --model.name."""
    timm_name: str
    args: dict[str, Any]
    """For timm's constructor."""
    source: str


def _tokens(width: int, depth: int, patch: int = 4) -> dict[str, Any]:
    return {"patch_size": patch, "embed_dim": width, "depth": depth, "num_heads": 4}


def _swin(width: int, depths: list[int], mlp_ratio: float = 4.0) -> dict[str, Any]:
    sizes = {"embed_dim": width, "depths": depths, "num_heads": [2 * 2**i for i in range(len(depths))]}
    return {"patch_size": 2, "window_size": 4, **sizes, "mlp_ratio": mlp_ratio}


def _pvt(widths: list[int], depths: list[int], heads: list[int], reduction: int) -> dict[str, Any]:
    sizes = {"embed_dims": widths, "depths": depths, "num_heads": heads}
    return {**sizes, "sr_ratios": [reduction, 1], "mlp_ratios": [4, 4]}


def _cct(width: int, depth: int, conv_width: int) -> dict[str, Any]:
    sizes = {"embed_dim": width, "depth": depth, "num_heads": 4, "mlp_ratio": 4.0}
    return {**sizes, "conv_layers": 2, "conv_width": conv_width}


def _cvt(widths: list[int], depths: list[int]) -> dict[str, Any]:
    heads = [width // 32 for width in widths]
    return {"embed_dims": widths, "depths": depths, "num_heads": heads, "patches": [[3, 2, 1], [3, 2, 1]]}


def _t2t(width: int, depth: int, token_dim: int) -> dict[str, Any]:
    sizes = {"embed_dim": width, "depth": depth, "num_heads": 4, "mlp_ratio": 4, "token_dim": token_dim}
    return {**sizes, "splits": [[3, 1, 1], [3, 2, 1], [3, 2, 1]]}


def _dat(width: int, stages: list[str]) -> dict[str, Any]:
    heads = [width // 32, width // 16]
    sizes = {"patch_size": 2, "embed_dim": width, "stages": stages, "num_heads": heads}
    return {**sizes, "window_sizes": [4, 4], "groups": [1, width // 32]}


_CCT, _CVT, _T2T, _DAT = "cct_7_3x1_32", "cvt_13", "t2t_vit_7", "dat_tiny"
_SWIN, _PVT = "swin_tiny_patch4_window7_224", "pvt_v2_b0"
_CONVNEXT, _HYBRID = "convnext_atto", "vit_tiny_r_s16_p8_224"
_BEIT, _RELATIVE = "beit_base_patch16_224", "vit_relpos_small_patch16_224"
_DISTILLED = "deit_tiny_distilled_patch16_224"
_MOBILEVIT, _RESNET = "mobilevit_small_images", "resnet_small_images"
_FAMILIES = [
    ("swin", _SWIN, "two stages from patches of 2 px on, windows of 4 x 4", _swin(32, [1, 4], 3.5), _swin(64, [2, 5])),
    (
        "convnext", _CONVNEXT, "four stages from single pixels on, the last of 8 x 8 px",
        {"patch_size": 1, "depths": [1, 1, 2, 1], "dims": [16, 32, 64, 112]},
        {"patch_size": 1, "depths": [2, 2, 4, 2], "dims": [32, 72, 120, 184]},
    ),
    (
        "pvt", "pvt_tiny", "two stages, the last of 4 x 4 px with a class token",
        {**_pvt([32, 64], [1, 3], [1, 2], 4), "patch_sizes": [2, 2]},
        {**_pvt([64, 128], [1, 5], [2, 4], 4), "patch_sizes": [2, 2]},
    ),
    (
        # timm's first patches are of 4 px: the last stage has a quarter of the ViT's tokens, so most blocks are in the
        # first, and its 64 places at 32 px are attended to whole.
        "pvtv2", _PVT, "two stages, the last of 8 x 8 px, overlapping patches, full attention",
        _pvt([48, 64], [5, 1], [2, 2], 1), _pvt([96, 128], [8, 1], [3, 4], 1),
    ),
    (
        "hybrid", _HYBRID, "a token for 4 x 4 px, behind convolutions that see the whole image",
        _tokens(64, 4, patch=1), _tokens(128, 6, patch=1),
    ),
    ("beit", _BEIT, "patches of 4 px, relative positions, layer scale", _tokens(64, 4), _tokens(128, 6)),
    (
        "relative", _RELATIVE, "patches of 4 px, relative positions by an MLP, no class token",
        _tokens(64, 4), _tokens(128, 6),
    ),
    ("deit", _DISTILLED, "patches of 4 px, a second class token", _tokens(64, 4), _tokens(128, 6)),
    ("cct", _CCT, "tokens for 4 x 4 px by two convolutions, no class token", _cct(64, 4, 12), _cct(128, 6, 24)),
    (
        "cvt", _CVT, "two stages, the last of 4 x 4 px, queries and keys by convolutions",
        _cvt([32, 64], [1, 3]), _cvt([64, 128], [1, 5]),
    ),
    ("t2t", _T2T, "tokens for 4 x 4 px from overlapping neighbours", _t2t(64, 4, 8), _t2t(128, 6, 16)),
    (
        "mobilevit", _MOBILEVIT, "convolutions around transformers, on places of 4 x 4 px",
        {"widths": [16, 32, 48], "dims": [48, 64], "depths": [2, 2]},
        {"widths": [32, 64, 96], "dims": [96, 128], "depths": [2, 4]},
    ),
    (
        "resnet", _RESNET, "eight residual blocks, from single pixels to places of 4 x 4 px",
        {"stem_width": 8, "channels": [8, 16, 44, 60]}, {"stem_width": 16, "channels": [16, 40, 96, 160]},
    ),
    (
        "dat", _DAT, "windows of 4 x 4, then deformable attention on 4 x 4 px",
        _dat(32, ["LS", "LDL"]), _dat(64, ["LS", "LDLDL"]),
    ),
]  # fmt: skip
FAMILIES = {
    f"{short}_{size}": Family(f"{short}_{size}", timm_name, args, what)
    for short, timm_name, what, *both in _FAMILIES
    for size, args in zip(("micro", "mini"), both, strict=True)
}
"""By short name; all read 8 px. At 32 px parameters are within a fifth of those of vit_micro (0.21 M) and vit_mini
(1.2 M), and the operations of a forward pass within a quarter of theirs (30 and 167 MFLOPs)."""
_ALSO = {"relpos": "relative", "distilled": "deit"}
"""What families have been called before."""


def known_as(name: str) -> str:
    """The short name that a family goes by, of one that it has or had; other names are as they are."""
    family, _, size = name.rpartition("_")
    return f"{_ALSO[family]}_{size}" if family in _ALSO else name


Needs = Literal["pooled", "tokens", "dropping"]
"""What an objective uses of a network, and what a network offers, each with all before it: one vector per image, its
tokens, or tokens of patches of which some are hidden, left out or replaced, so that nothing shows what they were."""


def meets(offers: Needs, needs: Needs) -> bool:
    """Whether a network that offers so much is enough for what needs so much."""
    levels = get_args(Needs)
    return levels.index(offers) >= levels.index(needs)


class ModelFacts(NamedTuple):
    """What a named timm model is by default."""

    img_size: int
    patch_size: int
    """Side of a patch, or of what one place of the last feature map stands for, in pixels."""
    width: int
    depth: int
    heads: int
    class_token: bool = True
    plain: bool = True
    """Whether it is a plain ViT, with tokens and sizes to choose; else it makes one vector of an image."""
    flexible: bool = True
    """Whether one network, as timm has it, reads images of several sizes."""
    sized: bool = True
    """Whether it can be built for images of another size than timm's."""
    drop_path: bool = True
    """Whether it has places for stochastic depth."""
    offers: Needs = "dropping"
    lacks: str = ""
    """Why it offers no more; empty where it offers everything."""


def wanted(model: ModelConfig, short_side: int = 1, preset: str | None = None) -> tuple[str, dict[str, Any] | None]:
    """The timm model that is named, or that of the preset, and what its constructor is given beside its sizes.

    ``short_side`` is the median shorter side of the images in pixels, without effect where the model is named.
    """
    name = known_as(model.name or preset_for(preset, model.img_size or short_side).network)
    family = FAMILIES.get(name)
    known = family or NETWORKS.get(name)
    args = {**(family.args if family else {}), **(model.args or {})}
    return known.timm_name if known else name, args or None


def resolve_model(
    model: ModelConfig,
    short_side: int,
    shape: ModelFacts,
    preset: str | None = None,
    positions: Literal["sincos", "learnable"] = "sincos",
) -> ResolvedModel:
    """Every size of the backbone as a number; ``shape`` is of the ``wanted`` model.

    Raises:
        UserError: For an option that the model does not have.
    """
    if not shape.plain:
        return _resolve_pooled(model, short_side, shape, preset)
    if model.args:
        raise UserError(
            f"--model.args {json.dumps(model.args)} is for networks that are no plain ViT; of a plain one choose "
            "--model.img_size, patch_size, width, depth, heads and positions"
        )
    check_pool(model.pool or "mean", shape.class_token, "--model.pool")
    patch = model.patch_size
    own = model.name is not None and model.name not in NETWORKS  # a timm model brings sizes of its own
    brought = shape.img_size if own and preset is None else _input(preset_for(preset, short_side), short_side, patch)
    size = model.img_size or brought
    chosen = preset_for(preset, size)
    fits = own and size % shape.patch_size == 0 and size >= 128
    usual_patch = next((p for p in chosen.patches if size % p == 0), chosen.patches[0])
    patch = patch or (shape.patch_size if fits else usual_patch)
    usual = shape if own else NETWORKS[model.name or chosen.network]
    return settle(
        ResolvedModel,
        model,
        name=wanted(model, short_side, preset)[0],
        img_size=size,
        patch_size=patch,
        width=model.width or usual.width,
        depth=model.depth or usual.depth,
        heads=model.heads or _heads_for(model.width or usual.width, usual.width, usual.heads),
        positions=model.positions or positions,
        pool=model.pool or (chosen.pool if shape.class_token else "mean"),
        init=model.init or "xavier",
    )


def _resolve_pooled(model: ModelConfig, short_side: int, shape: ModelFacts, preset: str | None) -> ResolvedModel:
    """The size of the input, in whole places of the last feature map; the rest is timm's, or ``--model.args``."""
    usual = ModelConfig()
    sizes = ("patch_size", "width", "depth", "heads", "positions", "init")
    lost = [k for k in sizes if getattr(model, k) != getattr(usual, k)]
    if lost:
        raise UserError(
            f"--model.{lost[0]} {getattr(model, lost[0])} is for plain ViTs; {model.name} is built as timm has it, "
            "but for --model.img_size and what --model.args gives to timm's constructor"
        )
    if model.pool == "cls":
        raise UserError(f"--model.pool cls needs a plain ViT; {model.name} has its own pooled feature, called mean")
    name, args = wanted(model)
    size = shape.img_size
    # A network with positions of one size brings that size, as a plain ViT does, unless it is chosen for the images.
    if shape.flexible or (shape.sized and (known_as(model.name or "") in FAMILIES or preset)):
        size = _input(preset_for(preset, short_side), short_side, shape.patch_size, least=1)
    return settle(ResolvedModel, model, name=name, args=args, img_size=model.img_size or size, pool="mean")


def _heads_for(width: int, usual_width: int, usual_heads: int) -> int:
    """As many heads of at least the model's own head size as divide the width."""
    return next(h for h in range(max(1, width * usual_heads // usual_width), 0, -1) if width % h == 0)


def _input(preset: Preset, short_side: int, patch: int | None, least: int = 2) -> int:
    """The images' own size where the preset is for it, else the preset's, rounded to whole patches."""
    within = preset.own_size and preset.fits(short_side)
    patch = patch or preset.patches[0]
    return max(least, round((short_side if within else preset.input) / patch)) * patch


def check_pool(pool: str, class_token: bool, option: str = "--linear.pool") -> None:
    """Raises a ``UserError`` for a pooling that needs a class token where there is none."""
    if "cls" in pool and not class_token:
        raise UserError(f"{option} {pool} needs a class token, which this backbone lacks; use mean")


def short_name(timm_name: str, args: Mapping[str, Any] | None) -> str | None:
    """What ``--model.name`` calls a network of another family; None where it has no name but timm's.

    Args:
        timm_name: timm's.
        args: What its constructor is given; more than the short name stands for may be among it.
    """
    given = args or {}
    return next(
        (
            family.name for family in FAMILIES.values()
            if family.timm_name == timm_name and all(given.get(key) == value for key, value in family.args.items())
        ),
        None,
    )  # fmt: skip


def in_words(timm_name: str, args: Mapping[str, Any], size: int) -> str:
    """A network at an input of ``size`` pixels as people read it; ``args`` are those that its folder records."""
    if {"embed_dim", "depth", "patch_size", "global_pool"} <= args.keys():  # recorded of transformers of one width
        blocks = f"ViT of {args['depth']} blocks of width {args['embed_dim']}"
        return f"{blocks}, patches of {args['patch_size']} px at {size} px"
    if short := short_name(timm_name, args):
        return f"{short} ({timm_name}) at {size} px"
    of_images = ("in_chans", "img_size", "strict_img_size", "dynamic_img_size")
    own = {key: value for key, value in args.items() if key not in of_images}
    return f"{timm_name} at {size} px" + (f" with {json.dumps(own)}" if own else "")


def words_of(model: ResolvedModel) -> str:
    """A network that a run builds, as people read it.

    Args:
        model: Its sizes.
    """
    plain = {"embed_dim": model.width, "depth": model.depth, "patch_size": model.patch_size, "global_pool": ""}
    args = plain | {"img_size": model.img_size} if model.patch_size else model.args or {}
    return in_words(model.name, args, model.img_size)


def table() -> str:
    """All networks as text of at most 120 columns."""
    vits = [(n.name, n.timm_name, f"{n.width} x {n.depth}", f"{n.heads}") for n in _NETWORKS]
    others = [(f.name, f.timm_name, f.source) for f in FAMILIES.values()]
    return "\n".join(
        [
            "Networks; --model.name takes these names too and leaves the patches to the preset:\n",
            aligned([("network", "timm model", "width x depth", "heads"), *vits]),
            "",
            *(note(n.name, f"Source: {n.source}") for n in _NETWORKS),
            "\nOther families, about as large and as costly as vit_micro and vit_mini; --model.args changes them:\n",
            aligned([("network", "timm model", "what it is"), *others]),
        ]
    )
