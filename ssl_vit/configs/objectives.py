"""Options that belong to one objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class MAEConfig:
    """Masked autoencoder (He et al. 2022)."""

    mask_ratio: float | None = None
    """Share of patches hidden from the encoder, in (0, 1); default: the paper's 0.75, up to 16 pixels 0.5."""
    norm_pix: bool | None = None
    """Reconstruct pixels normalised by each patch's own mean and variance (the paper's better targets); default: only
    above 16 pixels, where patches are large enough to have a shape of their own."""
    decoder_width: int | None = None
    """Decoder dimension; default: 512 for ViT-B and larger, else half the encoder's, at least 32."""
    decoder_depth: int | None = None
    """Decoder blocks; default: 8 for ViT-B and larger, 4 for ViT-Ti and ViT-S, 2 below."""
    decoder_heads: int | None = None
    """Decoder attention heads; default: 16 for ViT-B and larger, else the decoder's width / 32, at least 2."""


@dataclass(frozen=True)
class SupervisedConfig:
    """Training on labels: the labelled baseline and fine-tuning alike.

    Cross-entropy on classes, binary cross-entropy on several labels per image, squared error on numbers (standardised
    by the training labels' mean and deviation).
    """

    pool: Literal["cls", "mean", "mean_prenorm"] | None = None
    """What the classifier reads: class token or mean of patches after the final norm, or the mean of patches before
    it with a fresh LayerNorm (MAE's fine-tuning); default: the model's pool, with mean read as mean_prenorm. Models
    that are no plain ViT have mean alone, their own pooled feature."""
    label_smoothing: float = 0.1
    """Probability mass moved from the label to all classes, in [0, 1), MAE's value; with several labels per image 0 and
    1 each move towards the other by half of it; numbers are not smoothed."""
    mixup: float | None = None
    """Beta parameter of mixup, 0 for off; default: 0.8 above 16 pixels with 2,000 labels or more that are
    no numbers, else 0."""
    cutmix: float | None = None
    """Beta parameter of CutMix, 0 for off; default: 1 above 16 pixels with 2,000 labels or more that are
    no numbers, else 0."""
    drop_path: float = 0.1
    """Stochastic depth of plain ViTs: rate at the last block, growing linearly from 0 at the first. 0.1 is MAE's for
    ViT-B; it takes 0.2 for ViT-L and 0.3 for ViT-H."""
    ema_decay: float = 0.999
    """Decay of the weight average that is evaluated and exported; 0 for off, as in MAE's fine-tuning."""
    head_hidden: int = 0
    """Width of a hidden layer with tanh before the classifier (ViT, section 3.1); 0 for a linear classifier, the only
    kind that is exported for timm and eval/predict.py."""
