"""A network to learn from, as timm's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from ssl_vit.data.scale import PixelScale
from ssl_vit.exports.timm_folder import export_backbone
from ssl_vit.models.build import make_backbone

DIGITS = {"img_size": 8, "patch_size": 2, "embed_dim": 24, "depth": 2, "num_heads": 2, "in_chans": 1}
"""A plain ViT for scikit-learn's digits."""


def save_teacher(
    folder: Path, name: str = "vit_tiny_patch16_224", *, size: int = 8, bits: int = 8, seed: int = 0,
    about: dict[str, Any] | None = None, **args: Any,
) -> str:  # fmt: skip
    """Random weights; the folder's path.

    Args:
        folder: To make.
        name: timm's.
        size: Side of its input in pixels.
        bits: Of its images.
        seed: Of its weights.
        about: Recorded beside it.
        **args: timm's; default: a small ViT for digits.
    """
    torch.manual_seed(seed)
    plain = {"fc_norm": False} if name.startswith("vit_") else {}
    net = make_backbone(name, {**(args or DIGITS), **plain}, img_size=size)
    scale = PixelScale((0.3,) * net.channels, (0.4,) * net.channels, bits)
    folder.parent.mkdir(parents=True, exist_ok=True)
    export_backbone(net, folder, scale, "mean", about or {})
    return str(folder)
