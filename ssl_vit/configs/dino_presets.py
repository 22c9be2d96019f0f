"""What DINO's open options become, by size of images: as ``presets`` for MAE, each with its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ssl_vit.core.text import aligned, note, short


@dataclass(frozen=True)
class DinoPreset:
    """DINO's part of a preset; the defaults below are the paper's, for photographs of 224 pixels."""

    images: int
    """Budget: images seen, epochs x images; each is seen in every crop."""
    source: str
    expected: str
    """Result to expect, or that nobody measured it."""
    base_lr: float = 5e-4
    """Per 256 images of effective batch."""
    epochs: tuple[int, int] = (20, 800)
    """Fewest and most epochs that the budget may come to."""
    batch: int = 256
    """Effective batch, where there are images enough for four steps an epoch."""
    teacher_temp: float = 0.07
    centring: Literal["mean", "sinkhorn"] = "mean"
    drop_path: float = 0.1
    outputs: int = 256
    """Fewest outputs K."""
    global_scale: tuple[float, float] = (0.4, 1.0)
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
_SMALL = (
    "As px224, and reasoned: six local crops of half the side, no blur (SimCLR leaves it out on CIFAR-10); "
    "Sinkhorn-Knopp and a teacher temperature of .02, as px32."
)

DINO_PRESETS = {
    "digits": DinoPreset(
        images=200_000,
        epochs=(20, 800),
        batch=128,
        base_lr=4e-3,
        teacher_temp=0.01,
        centring="sinkhorn",
        drop_path=0.0,
        outputs=1024,
        global_scale=(0.6, 1.0),
        local_scale=(0.25, 0.6),
        local_crops=0,
        local_share=0.5,
        flip=False,
        blur=(0.0, 0.0, 0.0),
        solarise=0.0,
        source="Measured inside the training digits (benchmarks/results/dino_options.md): the paper's centring "
        "and its temperature of .04 collapse here, local crops take longer and learn less.",
        expected="k-NN with all 1,438 labels 93.9, fine-tuned 99.2, from scratch 97.8 (benchmarks/results/digits.md).",
    ),
    "px32": DinoPreset(
        images=4_000_000, base_lr=1e-3, teacher_temp=0.02, centring="sinkhorn", drop_path=0.0, local_crops=0,
        local_share=0.5, local_scale=(0.1, 0.4), blur=(0.0, 0.0, 0.0), source=_TINY,
        expected="CIFAR-10, 4 epochs, small ViT, 2,500 labels: k-NN 37.4, MAE 43.5 (benchmarks/results/cifar10.md).",
    ),
    "px64": DinoPreset(
        images=4_000_000, base_lr=1e-3, teacher_temp=0.02, centring="sinkhorn", local_crops=6, local_share=0.5,
        local_scale=(0.1, 0.4), blur=(0.0, 0.0, 0.0), source=_SMALL, expected="Not measured here.",
    ),
    "px96": DinoPreset(
        images=4_000_000, base_lr=1e-3, teacher_temp=0.02, centring="sinkhorn", local_crops=6, local_share=0.5,
        local_scale=(0.1, 0.4), blur=(0.0, 0.0, 0.0), source=_SMALL, expected="Not measured here.",
    ),
    "px128": DinoPreset(images=4_000_000, epochs=(100, 800), source=_PAPER, expected="Not measured here."),
    "px224": DinoPreset(
        images=4_000_000, epochs=(100, 800), source=_PAPER,
        expected="Not measured here. Elsewhere: ImageNet-1k, ViT-S/16, 100 epochs: k-NN 69.3, linear 74.0 (the "
        "authors). Imagenette, ViT-S/16, 200 epochs: k-NN 83.8 (stable-pretraining).",
    ),
}  # fmt: skip
"""By the name of the preset."""

_HEAD = ("preset", "images", "epochs", "batch", "lr", "global", "local crops", "flip", "jitter",
         "blur", "solar", "temp", "centring")  # fmt: skip


def table() -> str:
    """DINO's part of all presets as text of at most 120 columns."""
    rows = [_row(name, preset) for name, preset in DINO_PRESETS.items()]
    return "\n".join(
        [
            "DINO's part, for recipes/dino.py:\n",
            aligned([_HEAD, *rows]),
            "\nlocal crops: number x side as a share of the input, of which share of the image's area. lr: per 256 "
            f"images.\nsolar: chance of solarising. temp: the teacher's.\nOutputs: a power of two near images / "
            f"{IMAGES_PER_OUTPUT}, from 256 (digits: 1,024) to {MOST_OUTPUTS:,}.\n",
            *(note(name, f"Source: {p.source}") + "\n" + note("", f"Expected: {p.expected}")
              for name, p in DINO_PRESETS.items()),
        ]
    )  # fmt: skip


def _row(name: str, p: DinoPreset) -> tuple[str, ...]:
    share = f"{p.local_scale[0]:g}-{p.local_scale[1]:g}"
    return (
        name, f"{p.images / 1e6:g} M", f"{p.epochs[0]}-{p.epochs[1]}", f"{p.batch}", short(p.base_lr),
        f"{p.global_scale[0]:g}-{p.global_scale[1]:g}",
        f"{p.local_crops} x {p.local_share:.2g} of {share}" if p.local_crops else "none",
        "yes" if p.flip else "no", f"{p.jitter:g}", "/".join(f"{b:g}" for b in p.blur), f"{p.solarise:g}",
        f"{p.teacher_temp:g}" if p.teacher_temp <= 0.04 else f"0.04-{p.teacher_temp:g}", p.centring,
    )  # fmt: skip
