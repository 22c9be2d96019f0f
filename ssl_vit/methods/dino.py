"""DINO, self-distillation without labels (Caron et al. 2021): options, presets and what open options become."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from ssl_vit.configs.data import CropsConfig, ResolvedCrops, check_crops
from ssl_vit.configs.facts import SAME_RUN, Range
from ssl_vit.configs.fit import FitConfig, OptimConfig
from ssl_vit.configs.presets import Preset
from ssl_vit.configs.recipes import PretrainingRecipe, ResolvedPretraining
from ssl_vit.configs.settled import OPEN, Resolved, fill
from ssl_vit.core.errors import UserError
from ssl_vit.methods.method import BUDGET, Facts, Look, Method, MethodPreset, listing, settle_recipe


@dataclass(frozen=True)
class DINOConfig:
    """Self-distillation without labels (Caron et al. 2021)."""

    out_dim: Annotated[int | None, Range(2, ceiling=1 << 24)] = None
    """Outputs K that teacher and student agree on; the paper's 65,536 is for a million images. Default: the preset's,
    fewer for fewer images."""
    head_hidden: Annotated[int | None, Range(1, ceiling=1 << 20)] = None
    """Width of the head's hidden layers; default: the paper's 2,048, less for narrow networks."""
    head_bottleneck: Annotated[int | None, Range(1, ceiling=1 << 20)] = None
    """Width of what the head compares with its K outputs, normalised to length 1; default: the paper's 256, less for
    narrow networks."""
    head_layers: Annotated[int, Range(1, ceiling=100)] = 3
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
    teacher_warmup_epochs: Annotated[float | None, Range(0)] = None
    """The same in epochs, as papers give it: a longer run's teacher then warms up no longer. Default:
    ``teacher_warmup`` counts."""
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


@dataclass(frozen=True)
class ResolvedDINO(DINOConfig, Resolved):
    """Head and temperatures without open values; momentum, looks and chunks follow from the run where they are open."""

    out_dim: int = OPEN
    head_hidden: int = OPEN
    head_bottleneck: int = OPEN
    teacher_temp: float = OPEN
    warmup_teacher_temp: float = OPEN
    teacher_warmup: float = OPEN
    centring: Literal["mean", "sinkhorn"] = OPEN
    drop_path: float = OPEN


@dataclass(frozen=True)
class DINORecipe(PretrainingRecipe):
    """Options of recipes/dino.py.

    As DINO's code trains ViTs: AdamW with its usual betas, a tenth of the steps warm-up, weight decay growing from 0.04
    to 0.4, every parameter's gradient clipped by itself.
    """

    crops: CropsConfig = field(default_factory=CropsConfig)
    dino: DINOConfig = field(default_factory=DINOConfig)
    optim: OptimConfig = field(
        default_factory=lambda: OptimConfig(
            betas=(0.9, 0.999), min_lr=1e-6, warmup=0.1, schedule="peak_twice", weight_decay=0.04, weight_decay_end=0.4
        )
    )
    fit: FitConfig = field(default_factory=lambda: FitConfig(clip_each=3.0))


@dataclass(frozen=True)
class ResolvedDINORecipe(ResolvedPretraining, DINORecipe):
    """The same without open values."""

    crops: ResolvedCrops = OPEN
    dino: ResolvedDINO = OPEN


@dataclass(frozen=True, kw_only=True)
class DINOPreset(MethodPreset):
    """The defaults are the paper's, for photographs of 224 pixels; each image is seen in every crop."""

    base_lr: float = 5e-4
    teacher_temp: float = 0.07
    centring: Literal["mean", "sinkhorn"] = "mean"
    drop_path: float = 0.1
    outputs: int = 256
    """Fewest outputs K."""
    global_scale: tuple[float, float] = (0.4, 1.0)
    global_share: float = 1.0
    """Side of a global crop as a share of the input's."""
    local_scale: tuple[float, float] = (0.05, 0.4)
    local_crops: int = 8
    local_share: float = 96 / 224
    """Side of a local crop as a share of the input's."""
    flip: bool = True
    jitter: float = 1.0
    blur: tuple[float, float, float] = (1.0, 0.1, 0.5)
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    solarise: float = 0.2


MOST_OUTPUTS, IMAGES_PER_OUTPUT = 65536, 16
"""Outputs K: a power of two near a sixteenth of the images, at least the preset's and at most this; the paper's 65,536
is a twentieth of ImageNet's 1.28 million."""

_PAPER = (
    "DINO's code for ViT-S (arXiv 2104.14294 and released options): crops, colours, head, temperatures of .04 to .07, "
    "weight decay .04 to .4, clip 3, base lr 5e-4. Reasoned: the budget, outputs by the number of images."
)
_TINY = (
    "As px224, but two crops (local ones cost half as much again) and no blur, as published CIFAR-10 recipes of DINO "
    "(lightly). Reasoned from digits: Sinkhorn-Knopp and a cold teacher, no stochastic depth in so few blocks."
)
_LONG = "As px64, with 4,096 outputs at least and no stochastic depth; reasoned, for GPUs."
_SMALL = (
    "As px224, and reasoned: six local crops of half the side, no blur (SimCLR leaves it out on CIFAR-10); "
    "Sinkhorn-Knopp and a teacher temperature of .02, as px32-cpu."
)
_MIDDLE = DINOPreset(
    base_lr=1e-3, teacher_temp=0.02, centring="sinkhorn", local_crops=6, local_share=0.5, local_scale=(0.1, 0.4),
    blur=(0.0, 0.0, 0.0), source=_SMALL,
)  # fmt: skip

PRESETS = {
    "digits": DINOPreset(
        images=200_000, batch=128, base_lr=4e-3, teacher_temp=0.01, centring="sinkhorn", drop_path=0.0, outputs=1024,
        global_scale=(0.6, 1.0), local_scale=(0.25, 0.6), local_crops=0, local_share=0.5, flip=False,
        blur=(0.0, 0.0, 0.0), solarise=0.0,
        source="Measured inside the training digits (benchmarks/results/dino_options.md): the paper's centring "
        "and its temperature of .04 collapse here, local crops take longer and learn less.",
        expected="k-NN with all 1,438 labels 93.3, fine-tuned 99.7, from scratch 97.1 (benchmarks/results/digits.md).",
    ),
    "px32": replace(_MIDDLE, outputs=4096, drop_path=0.0, source=_LONG),
    "px32-cpu": DINOPreset(
        base_lr=1e-3, teacher_temp=0.02, centring="sinkhorn", drop_path=0.0, local_crops=0,
        local_share=0.5, local_scale=(0.1, 0.4), blur=(0.0, 0.0, 0.0), source=_TINY,
        expected="CIFAR-10, 1.5 epochs, small ResNet, 500 labels, linear-cached: 34.5, LeJEPA 37.9 "
        "(benchmarks/results/league.md).",
    ),
    "px64": _MIDDLE,
    "px96": _MIDDLE,
    "px128": DINOPreset(epochs=(100, 800), source=_PAPER),
    "px224": DINOPreset(
        epochs=(100, 800), source=_PAPER,
        expected="Not measured here. Published numbers are of other settings: --config dino_vits16_100 (k-NN 69.3 on "
        "ImageNet-1k) and dino_vits16_300 are the authors'.",
    ),
}  # fmt: skip
"""By the name of the preset."""

_WIDE = 192
"""D of ViT-Ti, the narrowest network that gets the paper's head."""
_PAPER_TEMP = 0.04
"""Of the teacher at the start."""
_WARMUP = 0.3
"""Share of the epochs in which the teacher's temperature grows; DINO's recipes take 30 of 100."""


def resolve(cfg: DINORecipe, facts: Facts, preset: Preset) -> ResolvedDINORecipe:
    """Crops, head, temperatures and stochastic depth; length, batch and rate. UserError as ``resolve_crops``."""
    own = PRESETS[preset.name]
    final = own.teacher_temp if cfg.dino.teacher_temp is None else cfg.dino.teacher_temp
    start = min(_PAPER_TEMP, final) if cfg.dino.warmup_teacher_temp is None else cfg.dino.warmup_teacher_temp
    outputs = 2 ** round(math.log2(max(2, facts.images / IMAGES_PER_OUTPUT)))
    dino = fill(
        ResolvedDINO,
        cfg.dino,
        drop_path=own.drop_path,
        out_dim=min(MOST_OUTPUTS, max(own.outputs, outputs)),
        head_hidden=hidden_width(facts),
        head_bottleneck=256 if facts.width >= _WIDE else 2 * facts.width,
        teacher_temp=final,
        warmup_teacher_temp=start,
        teacher_warmup=_WARMUP if final > start else 0.0,
        centring=own.centring,
    )
    dino = replace(dino, drop_path=facts.drop_path(dino.drop_path, "--dino.drop_path"))
    crops = resolve_crops(cfg.crops, own, facts)
    return settle_recipe(ResolvedDINORecipe, cfg, facts, preset, own, crops=crops, dino=dino)


def hidden_width(facts: Facts) -> int:
    """Width of a head's hidden layers: the papers' 2,048, less for narrow networks."""
    return 2048 if facts.width >= _WIDE else 8 * facts.width


def resolve_crops(cfg: CropsConfig, own: DINOPreset, facts: Facts) -> ResolvedCrops:
    """Crops as definite values; UserError for ranges the wrong way round, or patches that are torn by a crop."""
    patch = facts.patch
    usual = {name: getattr(own, name) for name in vars(cfg) if hasattr(own, name)}
    whole = 1.0 if not facts.network.flexible else own.global_share  # some networks read one size alone
    sides = {"global_size": whole, "local_size": own.local_share}
    usual |= {name: max(1, round(share * facts.model.img_size / patch)) * patch for name, share in sides.items()}
    crops = fill(ResolvedCrops, cfg, **usual)
    for name in sides:
        side: int = getattr(crops, name)
        if facts.network.plain and side % patch:
            below = side // patch * patch
            options = f"{below} or {below + patch}" if below else f"{patch}"
            raise UserError(
                f"--crops.{name} {side} is not a multiple of the patch size {patch}; use {options}, or another "
                "--model.patch_size"
            )
    check_crops(crops)
    return crops


def table() -> str:
    """DINO's part of all presets."""
    return listing(
        "DINO's part, for recipes/dino.py",
        PRESETS,
        {
            **BUDGET,
            "global": lambda p: f"{p.global_scale[0]:g}-{p.global_scale[1]:g}",
            "local crops": _local,
            "flip": lambda p: "yes" if p.flip else "no",
            "jitter": lambda p: f"{p.jitter:g}",
            "blur": lambda p: "/".join(f"{b:g}" for b in p.blur),
            "solar": lambda p: f"{p.solarise:g}",
            "temp": lambda p: f"{p.teacher_temp:g}" if p.teacher_temp <= 0.04 else f"0.04-{p.teacher_temp:g}",
            "centring": lambda p: p.centring,
        },
        "\nlocal crops: number x side as a share of the input, of which share of the image's area. lr: per 256 "
        "images.\nsolar: chance of solarising. temp: the teacher's.\nOutputs: a power of two near images / "
        f"{IMAGES_PER_OUTPUT}, from 256 (digits: 1,024) to {MOST_OUTPUTS:,}.\n",
    )


def _local(p: DINOPreset) -> str:
    share = f"{p.local_scale[0]:g}-{p.local_scale[1]:g}"
    words = f"{p.local_crops} x {p.local_share:.2g} of {share}" if p.local_crops else "none"
    return words.replace("0.", ".")


METHOD = Method(
    name="dino",
    title="DINO",
    paper="Caron et al. 2021, self-distillation with multi-crop",
    recipe=DINORecipe,
    needs="pooled",
    resolve=resolve,
    presets=table,
    build="ssl_vit.objectives.dino:build",
    positions="learnable",
    look=Look("#d56a00", "#ff8a3c", "s", (5.0, 1.6)),
    unasked=True,
)
