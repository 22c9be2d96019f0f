"""Options for the backbone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from ssl_vit.configs.facts import NO_EFFECT, Range
from ssl_vit.configs.settled import OPEN, Resolved


@dataclass(frozen=True)
class ModelConfig:
    """The network, a Vision Transformer unless another is named; channels come from the data."""

    name: str | None = None
    """A timm model that is a plain ViT, e.g. vit_small_patch16_224, with the image and patch size in its name; or a
    network alone, with sizes from the images: vit_micro, vit_mini (for CPUs), vit_tiny, vit_small, vit_base,
    vit_large, vit_huge. Without MAE and BEiT also any other timm model that makes one vector of an image: resnet50,
    swin_tiny_patch4_window7_224, mobilevit_s; or such a family in the size of vit_micro and vit_mini by a
    short name: swin_micro, cct_mini and others, which --preset lists. Default: the preset's."""
    img_size: Annotated[int | None, Range(1, ceiling=1 << 14)] = None
    """Side of the square input in pixels; default: the named model's own, else from the data (as for models that are no
    plain ViT, where they read images of any size)."""
    patch_size: Annotated[int | None, Range(1, ceiling=1 << 14)] = None
    """Side of a patch in pixels; an image size that is given must be a multiple, one that comes from the images is
    rounded to one. Default: the named model's own, or from that size."""
    width: Annotated[int | None, Range(1, ceiling=1 << 16)] = None
    """Embedding dimension D; default: the named model's own."""
    depth: Annotated[int | None, Range(1, ceiling=1000)] = None
    """Number of transformer blocks; default: the named model's own."""
    heads: Annotated[int | None, Range(1, ceiling=1024)] = None
    """Attention heads, a divisor of the width; default: the named model's own."""
    positions: Literal["sincos", "learnable", "factorised", "none"] | None = None
    """Position embedding: fixed 2-D sine-cosine in MAE's order (trainable once labels are used), learnable with one row
    per patch, factorised into a learnable table per axis, or none (patches are then a bag without order). Default:
    sincos; for DINO learnable, as in its paper."""
    pool: Literal["cls", "mean"] | None = None
    """What represents an image in evaluation: class token or mean of patches, both after the final norm;
    default: mean up to 16 pixels, else cls."""
    init: Literal["xavier", "trunc_normal"] | None = None
    """What the weights of a plain ViT are drawn from: xavier (uniform by the size of each matrix, MAE's), or
    trunc_normal (deviation 0.02 whatever the size, and patches as torch projects them: DINO's and DeiT's). Default:
    xavier, which small widths need."""
    args: dict[str, Any] | None = None
    """Of a model that is no plain ViT: further arguments of timm's constructor, such as '{"embed_dim": 48, "depths":
    [2, 2, 2], "num_heads": [2, 4, 8]}'. Default: those of the short name, else timm's own."""
    weights: Annotated[str | None, NO_EFFECT] = None
    """Weights to go on from, and with them the network: RUN, a folder that timm saved, a ViT or ViTMAE folder of
    transformers, a file of MAE, DINO, DINOv2 or DINOv3, or a name of timm's (vit_small_patch14_dinov2.lvd142m).
    Channels are adapted; of the options here only img_size, patch_size and pool may be given beside it. A run is known
    by what the weights are, not by where they lie. Default: random weights."""


@dataclass(frozen=True)
class ResolvedModel(ModelConfig, Resolved):
    """The network by name and size; what only plain ViTs have stays open for others."""

    name: str = OPEN
    img_size: int = OPEN
    pool: Literal["cls", "mean"] = OPEN


@dataclass(frozen=True)
class AdaptConfig:
    """Changes to a pre-trained backbone before it is fine-tuned."""

    img_size: Annotated[int | None, Range(1, ceiling=1 << 14)] = None
    """Side of the square input in pixels, a multiple of the patch size: positions are interpolated to the new grid;
    default: the backbone's own."""
    patch_size: Annotated[int | None, Range(1, ceiling=1 << 14)] = None
    """Side of a patch in pixels, of a plain ViT: the patch projection is resampled (FlexiViT); default: the backbone's
    own."""
