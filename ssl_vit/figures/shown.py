"""The images that pictures of a backbone are made of."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ssl_vit.configs import DataConfig, FiguresConfig, PoolConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.loading.loader import some_images
from ssl_vit.data.scale import PixelScale
from ssl_vit.data.sources.locate import same_source
from ssl_vit.data.sources.opening import open_images
from ssl_vit.evaluation.input_format import as_trained, fitted
from ssl_vit.exports.timm_folder import Exported
from ssl_vit.models.backbone import Backbone, TokenBackbone
from ssl_vit.models.vit import ViTBackbone
from ssl_vit.views.evaluation import eval_images


class Shown(NamedTuple):
    """Images as the backbone sees them."""

    pixels: Float[Tensor, "B C S S"]
    """Normalised."""
    scale: PixelScale
    words: str
    """How many of which images at which size."""
    backbone: Backbone
    """What sees them, for as many channels as they have."""


def open_shown(exported: Exported, given: str | None, cfg: FiguresConfig) -> Shown:
    """Some images, cut and normalised as evaluation does it; those that cannot be read are named and left out.

    Args:
        exported: The backbone.
        given: ``--images``: where they are; None for those of the backbone's own run.
        cfg: How many, and how large.

    Raises:
        UserError: Where there are none, or not of the kind that the backbone was built for, or the size is no multiple
            of its patches.
    """
    size = cfg.img_size or exported.size
    patch = exported.backbone.patch_size if isinstance(exported.backbone, TokenBackbone) else 1
    if size % patch:
        below = size // patch * patch
        options = f"{below} or {below + patch}" if below else f"{patch}"
        raise UserError(
            f"--figures.img_size {size} is not a multiple of the backbone's patches of {patch} px; use {options}"
        )
    recorded = exported.about.get("data")
    if given is None and recorded is None:
        raise UserError("the backbone does not say what it was trained on; name images with --images")
    own = PoolConfig(**(recorded or {}))
    data = own
    if given is not None and (recorded is None or not same_source(given, own.path)):
        columns = own.image_column if "," in (own.image_column or "") else None  # they are the channels of one image
        data = DataConfig(path=given, image_column=columns)
    try:
        images = open_images(data)
    except UserError as error:
        if given is not None:
            raise UserError(f"--images {given}: {error}") from error
        raise UserError(
            f"the images that the backbone was trained on cannot be opened ({error}); name others with --images"
        ) from error
    # A larger input sees more of an image of which windows are cut.
    images = as_trained(images, exported).on_canvas(own.canvas, size, max(own.window, size) if own.window else None)
    exported = fitted(images, exported)
    batch, unreadable = some_images(images, cfg.count, torch.device("cpu"))
    for reason in unreadable:
        sys.stderr.write(f"warning: {reason}; it is left out\n")
    name = Path(images.name).name or images.name
    words = f"{len(batch.index)} of {len(images):,} images of {name} at {size} px"
    return Shown(eval_images(batch, exported.scale, size, torch.float32), exported.scale, words, exported.backbone)


def network(backbone: Backbone, rows: int, columns: int) -> str:
    """A backbone in the title of a picture, with as many patches as the picture shows."""
    if not isinstance(backbone, TokenBackbone):
        return backbone.architecture
    if not isinstance(backbone, ViTBackbone):
        return f"{backbone.architecture}, {rows} x {columns} patches of {backbone.patch_size} px"
    return f"ViT {backbone.embed_dim} x {backbone.depth}, {rows} x {columns} patches of {backbone.patch_size} px"
