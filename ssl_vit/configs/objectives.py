"""Options that belong to one objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from ssl_vit.configs.facts import SAME_RUN, Range


@dataclass(frozen=True)
class MAEConfig:
    """Masked autoencoder (He et al. 2022)."""

    mask_ratio: float | None = None
    """Share of patches hidden from the encoder, in (0, 1); default: the paper's 0.75, up to 16 pixels 0.5."""
    norm_pix: bool | None = None
    """Reconstruct pixels normalised by each patch's own mean and variance (the paper's better targets); default: only
    above 16 pixels, where patches are large enough to have a shape of their own."""
    decoder_width: Annotated[int | None, Range(4)] = None
    """Decoder dimension; default: 512 for ViT-B and larger, else half the encoder's, at least 32."""
    decoder_depth: Annotated[int | None, Range(1)] = None
    """Decoder blocks; default: 8 for ViT-B and larger, 4 for ViT-Ti and ViT-S, 2 below."""
    decoder_heads: Annotated[int | None, Range(1)] = None
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
    label_smoothing: Annotated[float, Range(0, 0.999)] = 0.1
    """Probability mass moved from the label to all classes, in [0, 1), MAE's value; with several labels per image 0 and
    1 each move towards the other by half of it; numbers are not smoothed."""
    mixup: Annotated[float | None, Range(0, 100)] = None
    """Beta parameter of mixup, 0 for off; default: 0.8 above 16 pixels with 2,000 labels or more that are
    no numbers, else 0."""
    cutmix: Annotated[float | None, Range(0, 100)] = None
    """Beta parameter of CutMix, 0 for off; default: 1 above 16 pixels with 2,000 labels or more that are
    no numbers, else 0."""
    drop_path: Annotated[float, Range(0, 0.999)] = 0.1
    """Stochastic depth of plain ViTs: rate at the last block, growing linearly from 0 at the first. 0.1 is MAE's for
    ViT-B; it takes 0.2 for ViT-L and 0.3 for ViT-H."""
    ema_decay: Annotated[float, Range(0, 0.999999)] = 0.999
    """Decay of the weight average that is evaluated and exported; 0 for off, as in MAE's fine-tuning."""
    head_hidden: Annotated[int, Range(0)] = 0
    """Width of a hidden layer with tanh before the classifier (ViT, section 3.1); 0 for a linear classifier, the only
    kind that is exported for timm and eval/predict.py."""


@dataclass(frozen=True)
class DINOConfig:
    """Self-distillation without labels (Caron et al. 2021)."""

    out_dim: Annotated[int | None, Range(2)] = None
    """Outputs K that teacher and student agree on; the paper's 65,536 is for a million images. Default: the preset's,
    fewer for fewer images."""
    head_hidden: Annotated[int | None, Range(1)] = None
    """Width of the head's hidden layers; default: the paper's 2,048, less for narrow networks."""
    head_bottleneck: Annotated[int | None, Range(1)] = None
    """Width of what the head compares with its K outputs, normalised to length 1; default: the paper's 256, less for
    narrow networks."""
    head_layers: Annotated[int, Range(1)] = 3
    """Linear layers of the head before its last one, at least 1."""
    norm_last_layer: bool = True
    """Keep the last layer's rows at length 1 (the paper's choice except for ViT-S, where false gains a little)."""
    student_temp: Annotated[float, Range(0.001)] = 0.1
    """Temperature of the student's softmax."""
    teacher_temp: Annotated[float | None, Range(0.001)] = None
    """Temperature of the teacher's softmax after its warm-up; default: the preset's. Lower is sharper: against uniform
    collapse lower it, against one dominant output raise it."""
    warmup_teacher_temp: Annotated[float | None, Range(0.001)] = None
    """Temperature of the teacher at the start; default: the paper's 0.04, or ``teacher_temp`` where that is lower."""
    teacher_warmup: Annotated[float | None, Range(0, 1)] = None
    """Share of all epochs over which the teacher's temperature grows, epoch by epoch, in [0, 1]; default: 0.3 where it
    is to grow at all, else 0."""
    centring: Literal["mean", "sinkhorn"] | None = None
    """What keeps one output from winning everything: the paper's running centre of the teacher's outputs, or three
    Sinkhorn-Knopp iterations over each micro-batch of all processes (SwAV, DINOv2). Default: the preset's."""
    centre_momentum: Annotated[float, Range(0, 0.999999)] = 0.9
    """Share of the centre that one optimiser step keeps, in [0, 1)."""
    momentum: Annotated[float | None, Range(0, 1)] = None
    """Share of the teacher that one optimiser step keeps at the start, growing to 1 by a cosine. Default:
    0.996^(batch / 1024), the paper's per image, but never a memory of more than 5 % of all steps."""
    freeze_last_layer: Annotated[float, Range(0)] = 1.0
    """Epochs in which the head's last layer is not trained."""
    drop_path: Annotated[float | None, Range(0, 0.999)] = None
    """Stochastic depth of the student: rate at the last block, growing linearly from 0 at the first. Default: the
    paper's 0.1, none for the smallest images."""
    export: Annotated[Literal["teacher", "student"], SAME_RUN] = "teacher"
    """Whose backbone evaluation gets."""
    on_collapse: Annotated[Literal["stop", "warn"], SAME_RUN] = "stop"
    """What happens when the outputs stay collapsed: uniform, or all images in one output."""
    collapse_patience: Annotated[float, Range(1e-6, 1), SAME_RUN] = 0.1
    """Share of all steps that a collapse must last, in (0, 1], at least 50 steps; as many at the start do not count."""
    check_steps: Annotated[int | None, Range(1), SAME_RUN] = None
    """Optimiser steps between looks at outputs and features (health.jsonl); default: an epoch, within 20 to 100."""
    loss_chunk: Annotated[int | None, Range(1), SAME_RUN] = None
    """Images whose outputs are in memory at once: bounds the peak, not the result. Default: as many as fit 256 MB. (Of
    Sinkhorn-Knopp's, which looks at all of them, only the student's.)"""
