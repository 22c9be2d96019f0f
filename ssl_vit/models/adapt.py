"""A backbone at another resolution or patch size: what fine-tuning on larger images starts from."""

from __future__ import annotations

import copy

from timm.layers.patch_embed import resample_patch_embed

from ssl_vit.configs import ModelConfig
from ssl_vit.core.errors import UserError
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.build import check_shape, make_backbone
from ssl_vit.models.pooled import PooledBackbone
from ssl_vit.models.positions import resample
from ssl_vit.models.vit import ViTBackbone


def adapt(backbone: Backbone, *, img_size: int | None = None, patch_size: int | None = None) -> Backbone:
    """The same network for another input size or another patch size.

    Positions are interpolated to the new grid (ViT, section 3.2) while rows of class and register tokens stay. The
    patch projection is multiplied by the pseudo-inverse of the resizing of patches (Beyer et al. 2023, "FlexiViT",
    section 3.4), so that an enlarged patch gives the token of the original one. A model that is no plain ViT reads
    images of another size as it is, or not at all.

    Args:
        backbone: Left as it is.
        img_size: Side of the input in pixels; None for the backbone's own.
        patch_size: Side of a patch in pixels; None for the backbone's own.

    Returns:
        A new backbone, or the given one where nothing changes.

    Raises:
        UserError: When the image size is no multiple of the patch size, or cannot be read, or there are no patches.
    """
    size = img_size or backbone.img_size
    if isinstance(backbone, PooledBackbone):
        return _at_size(backbone, size, patch_size)
    assert isinstance(backbone, ViTBackbone)
    patch = patch_size or backbone.patch_size
    if (size, patch) == (backbone.img_size, backbone.patch_size):
        return backbone
    check_shape(ModelConfig(None, size, patch, backbone.embed_dim, heads=1, positions="learnable"))
    sizes = {"img_size": size, "patch_size": patch}
    new = make_backbone(backbone.architecture, {**backbone.model_args, **sizes})
    assert isinstance(new, ViTBackbone)
    state = dict(backbone.timm_state())
    projection = "patch_embed.proj.weight"
    state[projection] = resample_patch_embed(state[projection], [patch, patch])
    if "pos_embed" in state:
        state["pos_embed"] = resample(state["pos_embed"], backbone.grid, new.grid, prefix=backbone.embedded_prefix)
    new.vit.load_state_dict(state)
    return new


def _at_size(backbone: PooledBackbone, size: int, patch_size: int | None) -> PooledBackbone:
    if patch_size is not None:
        raise UserError(f"--model.patch_size {patch_size} is for plain ViTs; {backbone.architecture} has no patches")
    if size == backbone.img_size:
        return backbone
    if backbone.width_at(size) != backbone.embed_dim:
        raise UserError(
            f"--model.img_size {size}: this {backbone.architecture} cannot read images of that size; leave it out, "
            f"they are then resized to {backbone.img_size} pixels"
        )
    new = copy.deepcopy(backbone)
    new.img_size = size
    return new
