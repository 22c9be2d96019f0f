"""The image sets of league.py, and what is tried on each in the time that it has."""

from __future__ import annotations

from dataclasses import dataclass

PIXELS, WORDS = "raw pixels", "k-means of patches"
"""References that are not trained by gradients."""


@dataclass(frozen=True)
class Entry:
    """One way to use the time."""

    recipe: str
    """Of recipes/; empty: features that are not trained."""
    words: tuple[str, ...]
    """Its options besides path, seed and folder."""
    epochs: float
    """Of a trial: what a core does in some minutes."""
    begins: Entry | None = None
    """What is trained before, from whose weights it goes on."""


@dataclass(frozen=True)
class Field:
    """One set."""

    about: str
    labels: int
    """Of a draw."""
    metric: str
    time: str
    """What the final may take."""
    size: int
    """Side in pixels that references read."""
    data: tuple[str, ...]
    """Options about the images, besides the path."""
    entries: dict[str, Entry]
    """Of trials."""
    finals: dict[str, Entry]
    """Judged on the test images."""


_STEPS = ("--fit.batch_size", "128", "--optim.base_lr", "4e-3")


def _crops(least: float) -> tuple[str, ...]:
    """Two of 24 px of at least that share of the image."""
    return "--crops.global_size", "24", "--crops.global_scale", f"[{least}, 1.0]"


def _lejepa(network: tuple[str, ...], least: float, epochs: float, begins: Entry | None = None) -> Entry:
    """Two such crops, batches of 128, AdamW at 2e-3."""
    return Entry("lejepa", (*network, *_crops(least), *_STEPS), epochs, begins)


_RESNET = ("--model.name", "resnet_mini")
_HYBRID = ("--model.name", "hybrid_mini")
_WIDER = (
    "--model.name", "resnet_small_images",
    "--model.args", "{layers: [1, 1, 1, 1], channels: [32, 64, 128, 256], stem_width: 32}",
)  # fmt: skip
_LOCAL = ("--crops.local_crops", "2", "--crops.local_size", "16", "--crops.local_scale", "[0.05, 0.2]")
_LEARNING = (
    "--teacher", "docs/models/cifar10", "--preset", "px32-cpu", "--fit.batch_size", "128", "--optim.base_lr", "3e-3"
)  # fmt: skip
"""From what the final's px32-cpu made with seed 0, whose minutes come on top."""
_SMALLER = Entry("lejepa", (*_RESNET, "--crops.global_size", "16", "--crops.global_scale", "[0.2, 1.0]", *_STEPS), 1.1)
_NONE = Entry("", (), 0)
SETS = {
    "cifar10": Field(
        "CIFAR-10 (50,000 training and 10,000 test images of 32 px)", 500, "top1", "an hour on two cores", 32, (),
        {
            WORDS: _NONE,
            "lejepa, resnet_mini, crops from 0.4": _lejepa(_RESNET, 0.4, 2),
            "lejepa, resnet_mini": _lejepa(_RESNET, 0.2, 1.5),
            "lejepa, resnet of 256 channels": _lejepa(_WIDER, 0.2, 1.5),
            "lejepa, resnet_mini, 14 epochs": _lejepa(_RESNET, 0.2, 14),
            "lejepa, vit_mini": _lejepa(("--model.name", "vit_mini"), 0.2, 1.5),
            "lejepa, hybrid_mini": _lejepa(_HYBRID, 0.2, 1.5),
            "lejepa, hybrid_mini, 14 epochs": _lejepa(_HYBRID, 0.2, 14),
            "lejepa, resnet_mini, 4 views": _lejepa((*_RESNET, *_LOCAL), 0.2, 1.0),
            "lejepa, resnet_mini, 64 projections": _lejepa((*_RESNET, "--lejepa.out_dim", "64"), 0.2, 1.5),
            "lejepa, resnet_mini, crops of 16 px before": _lejepa((), 0.2, 1.0, _SMALLER),
            "diet, resnet_mini": Entry("diet", (*_RESNET, "--augment.crop_scale", "[0.2, 1.0]", *_STEPS), 1.5),
            "distilled from px32-cpu, hybrid_mini": Entry("distill", (*_HYBRID, *_LEARNING), 15),
            "distilled from px32-cpu, vit_mini": Entry("distill", ("--model.name", "vit_mini", *_LEARNING), 20),
            "dino, resnet_mini": Entry(
                "dino", (*_RESNET, *_crops(0.2), "--crops.local_crops", "0", "--fit.batch_size", "128"), 1.5
            ),
        },
        {
            "px32-cpu": Entry("lejepa", ("--preset", "px32-cpu"), 24),
            "distilled from px32-cpu, hybrid_mini": Entry("distill", (*_HYBRID, *_LEARNING), 15),
            "distilled from px32-cpu, vit_mini": Entry("distill", ("--model.name", "vit_mini", *_LEARNING), 20),
        },
    ),
    "digits": Field(
        "scikit-learn's digits (1,438 training and 359 test images of 8 px)", 10, "top1", "5 minutes on two cores", 8,
        (),
        {
            PIXELS: _NONE,
            "mae": Entry("mae", (), 500),
            "dino": Entry("dino", (), 200),
            "lejepa": Entry("lejepa", (), 200),
            "lejepa, no local crops": Entry("lejepa", ("--crops.local_crops", "0"), 400),
            "lejepa, resnet_mini": Entry("lejepa", (*_RESNET, "--crops.local_crops", "0"), 200),
        },
        {PIXELS: _NONE, "lejepa, no local crops": Entry("lejepa", ("--crops.local_crops", "0"), 240)},
    ),
    "cells16": Field(
        "cells16 (2,563 training and 855 test cells of 40 px in three 16-bit channels)", 128, "balanced",
        "30 minutes on two cores", 40, ("--data.image_column", "image,dna,ssc"),
        {
            PIXELS: _NONE,
            WORDS: _NONE,
            "mae, vit_mini": Entry("mae", ("--model.name", "vit_mini"), 40),
            "lejepa, vit_mini": Entry("lejepa", ("--model.name", "vit_mini"), 12),
            "lejepa, resnet_mini": Entry("lejepa", _RESNET, 12),
            "lejepa, resnet_mini, crops from 0.5": Entry(
                "lejepa", (*_RESNET, "--crops.global_scale", "[0.5, 1.0]"), 12
            ),
            "lejepa, resnet_mini, crops from 0.5, 80 epochs": Entry(
                "lejepa", (*_RESNET, "--crops.global_scale", "[0.5, 1.0]"), 80
            ),
        },
        {
            PIXELS: _NONE,
            WORDS: _NONE,
            "lejepa, resnet_mini, crops from 0.5": Entry(
                "lejepa", (*_RESNET, "--crops.global_scale", "[0.5, 1.0]"), 16
            ),
        },
    ),
    "magtile": Field(
        "magtile (978 training and 366 test images of many sizes, grey, at 64 px)", 98, "balanced",
        "30 minutes on two cores", 64, ("--model.img_size", "64", "--data.group", "tile_group"),
        {
            PIXELS: _NONE,
            WORDS: _NONE,
            "mae, vit_mini": Entry("mae", ("--model.name", "vit_mini"), 80),
            "lejepa, resnet_mini, 32 px": Entry(
                "lejepa", (*_RESNET, "--model.img_size", "32", "--crops.local_crops", "0"), 60
            ),
        },
        {
            PIXELS: _NONE,
            WORDS: _NONE,
            "lejepa, resnet_mini, 32 px": Entry(
                "lejepa", (*_RESNET, "--model.img_size", "32", "--crops.local_crops", "0"), 60
            ),
        },
    ),
}  # fmt: skip
