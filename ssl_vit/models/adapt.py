"""A backbone at another resolution or patch size: what fine-tuning on larger images starts from."""

from __future__ import annotations

from timm.layers.patch_embed import resample_patch_embed

from ssl_vit.configs import ModelConfig
from ssl_vit.models.build import check_shape, make_vit
from ssl_vit.models.positions import resample
from ssl_vit.models.vit import ViTBackbone


def adapt(backbone: ViTBackbone, *, img_size: int | None = None, patch_size: int | None = None) -> ViTBackbone:
    """The same network for another input size or another patch size.

    Positions are interpolated to the new grid (ViT, section 3.2) while rows of class and register tokens stay. The
    patch projection is multiplied by the pseudo-inverse of the resizing of patches (Beyer et al. 2023, "FlexiViT",
    section 3.4), so that an enlarged patch gives the token of the original one.

    Args:
        backbone: Any plain ViT; left as it is.
        img_size: Side of the input in pixels; None for the backbone's own.
        patch_size: Side of a patch in pixels; None for the backbone's own.

    Returns:
        A new backbone, or the given one where nothing changes.

    Raises:
        UserError: When the image size is no multiple of the patch size.
    """
    old = int(backbone.vit.patch_embed.img_size[0])
    size, patch = img_size or old, patch_size or backbone.patch_size
    if (size, patch) == (old, backbone.patch_size):
        return backbone
    check_shape(ModelConfig(None, size, patch, backbone.embed_dim, heads=1, positions="learnable"))
    sizes = {"img_size": size, "patch_size": patch}
    new = make_vit(backbone.architecture, {**backbone.model_args, **sizes})
    state = dict(backbone.timm_state())
    projection = "patch_embed.proj.weight"
    state[projection] = resample_patch_embed(state[projection], [patch, patch])
    if "pos_embed" in state:
        state["pos_embed"] = resample(state["pos_embed"], backbone.grid, new.grid, prefix=backbone.embedded_prefix)
    new.vit.load_state_dict(state)
    return new
