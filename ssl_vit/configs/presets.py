"""What open options become, whatever the method: a preset for each size of images.

Everything below is a starting point with its source beside it. A method's own part stands in its file (``methods``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.core.text import aligned, note, short

LabelledStart = Literal["scratch", "finetune"]
"""What training on labels begins with: random weights, or a backbone."""

LIST = "list"
"""The value of ``--preset`` that prints the table."""


@dataclass(frozen=True)
class Scratch:
    """How a network is trained on labels from random weights."""

    epochs: int = 100
    crop: Literal["random_resized", "pad"] = "random_resized"
    pool: Literal["model", "mean"] = "model"
    """What the classifier reads: as the model has it, or the mean of patches."""
    average: float = 0.999
    """Decay of the weight average."""


@dataclass(frozen=True)
class Preset:
    """Everything that depends on the size of the images; the defaults below are those of photographs."""

    name: str
    sides: tuple[int, int | None]
    """Sides of the network's input in pixels that it is chosen for (least, most; None: no limit)."""
    input: int
    """Side of the input in pixels, where the images' own is not used."""
    own_size: bool
    """Whether images within ``sides`` keep their own size, in whole patches."""
    patches: tuple[int, ...]
    """Sides of a patch in pixels, best first: the first that divides the input is used."""
    network: str
    base_lr: dict[LabelledStart, float]
    """Per 256 images of effective batch: from scratch and fine-tuning."""
    source: str
    pool: Literal["cls", "mean"] = "cls"
    flip: bool = True
    crop: Literal["random_resized", "pad"] = "random_resized"
    """How images are cropped, where labels are trained on."""
    labelled_crop: tuple[float, float] = (0.35, 1.0)
    """Area of a random resized crop as a share of the image, where labels are trained on; (1, 1): no crop."""
    policy: Literal["none", "randaugment"] = "randaugment"
    """RandAugment as MAE fine-tunes with, where labels are trained on."""
    erasing: float = 0.25
    """Share of images with an erased box, where labels are trained on."""
    mixup: float = 0.8
    cutmix: float = 1.0
    mixed_from: int = 2000
    """Fewest labels that are mixed by mixup and CutMix."""
    strong_from: int = 1_000_000
    """Images that training on labels sees (labels x epochs) from which on RandAugment, erasing and mixing are there.
    They keep a network from learning by heart, which shorter training never comes to: up to 400,000 they cost 3 to 21
    points (benchmarks/results/short_training.md), and where they begin to pay was not reached."""
    narrow_lr: float | None = 4e-3
    """As ``base_lr`` from scratch and of fine-tuning, of networks narrower than ``NARROW``; None: as of all others."""
    labelled_epochs: int = 100
    """Of fine-tuning."""
    labelled_batch: int = 64
    scratch: Scratch = Scratch()
    cpu: bool = False
    """Whether it is chosen on a CPU in place of the one for the same sides."""

    def seeing(self, images: float) -> Preset:
        """The same for training on labels that sees so many: short training has padded crops and mirror images alone.

        Boxes of random area, which show things larger than they are, cost cells 10 to 19 points
        (benchmarks/results/labelled_crops.md).
        """
        if images >= self.strong_from:
            return self
        crop = "pad" if self.labelled_crop != (1.0, 1.0) else self.crop
        return replace(self, crop=crop, policy="none", erasing=0.0, mixup=0.0, cutmix=0.0)

    def fits(self, side: int) -> bool:
        """Whether it is for images of that many pixels."""
        return self.sides[0] <= side <= (self.sides[1] or side)


NARROW = 192
"""Width of ViT-Ti. Searches with networks of width 96 and 128 (benchmarks/results/cells16.md and cifar10.md) end at a
rate of 1e-3 or more for batches of 64 in all 8 cases, never at the 2.5e-4 of wide ones."""
_LR: dict[LabelledStart, float] = {"scratch": 1e-3, "finetune": 1e-3}
_RECIPE = (
    "On labels: mixup 0.8 and CutMix 1 from MAE's fine-tuning (arXiv 2111.06377, appendix A.1), the rest reasoned."
)
_SMALL = "As px32: about 64 patches too, so the same network and cost."

_PRESETS = [
    Preset(
        "digits", sides=(1, 16), input=8, own_size=True, patches=(2, 1), network="vit_micro",
        base_lr={"scratch": 4e-3, "finetune": 2e-3}, narrow_lr=None, pool="mean", flip=False,
        labelled_crop=(1.0, 1.0), policy="none", erasing=0.0, mixup=0.0, cutmix=0.0,
        source="Measured on scikit-learn's 8x8 digits: network and rates. No crop or mirror image: they change what a "
        "digit is. From scratch 97.8 top-1 % with 1,438 labels, 42.7 with 20; k-NN of raw pixels 99.4 and 72.9 "
        "(benchmarks/results/digits_labels.md).",
    ),
    Preset(
        "px32", sides=(17, 40), input=32, own_size=True, patches=(4, 2, 3), network="vit_tiny", base_lr=_LR,
        scratch=Scratch(300, "pad", "mean", 0.9995),
        source=f"{_RECIPE} Reasoned, for GPUs: about 8 x 8 patches; from scratch 300 epochs, padded crops, the mean of "
        "patches and a longer average, as small ViTs on CIFAR-10 are mostly trained. Not measured here.",
    ),
    Preset(
        "px32-cpu", sides=(17, 40), input=32, own_size=True, patches=(4, 2, 3), network="vit_tiny", base_lr=_LR,
        cpu=True,
        source=f"{_RECIPE} As px32, sized for hours of a CPU. CIFAR-10 from scratch, vit_micro: 48.0 top-1 % of "
        "held-out images with 2,000 labels (benchmarks/results/short_training.md).",
    ),
    Preset(
        "px64", sides=(41, 72), input=64, own_size=True, patches=(8, 4, 6), network="vit_tiny", base_lr=_LR,
        source=_SMALL,
    ),
    Preset(
        "px96", sides=(73, 96), input=96, own_size=True, patches=(12, 8, 6), network="vit_tiny", base_lr=_LR,
        source=_SMALL,
    ),
    Preset(
        "px128", sides=(97, 192), input=128, own_size=False, patches=(16, 14, 12, 8), network="vit_small", base_lr=_LR,
        source=f"{_RECIPE} 128 px is 64 patches; --model.img_size 160 sees more of 160-px images at 1.6 times the "
        "cost.",
    ),
    Preset(
        "px224", sides=(193, None), input=224, own_size=False, patches=(16, 14, 12), network="vit_small", base_lr=_LR,
        source=_RECIPE,
    ),
]  # fmt: skip
PRESETS = {preset.name: preset for preset in _PRESETS}
"""By name, smallest images first."""

TINY = PRESETS["digits"].sides[1] or 0
"""Up to this many pixels a network costs so little that a second CPU core does not pay."""


def named(name: str) -> Preset:
    """The preset of that name; UserError for a name that is none."""
    if name not in PRESETS:
        close = did_you_mean(name, PRESETS)
        raise UserError(f"--preset {name} is none of {', '.join(PRESETS)}{close} (--preset alone explains them)")
    return PRESETS[name]


def for_side(side: int, *, cpu: bool = False) -> Preset:
    """The preset for an input, or an image, of that many pixels; on a CPU the one that is made for it, if any."""
    fitting = [p for p in _PRESETS if p.fits(side)]
    return next((p for p in fitting if p.cpu == cpu), fitting[0])


def preset_for(name: str | None, size: int, *, cpu: bool = False) -> Preset:
    """The preset that was named, else the one for the network's input."""
    return named(name) if name else for_side(size, cpu=cpu)


def table() -> str:
    """What presets fill for every method, as text of at most 120 columns."""
    photos = PRESETS["px32"]
    return "\n".join(
        [
            "A preset fills what is not given. The images choose one by their size (on a CPU px32-cpu, not px32),",
            "--preset NAME names one.\n",
            aligned([_HEAD, *map(_row, _PRESETS)]),
            "\nown/32: the images' own size in whole patches; 32 px where images of other sizes are given it.",
            "base lr, epochs: from scratch/fine-tuning, the rate per 256 images of effective batch.",
            f"On labels: networks narrower than {NARROW} take {short(photos.narrow_lr or 0)} from px32 on; batches",
            "grow from 131,072 images on; crops are padded from px32 on (px32 from scratch: and the mean of patches is",
            f"read). Where training sees {photos.strong_from:,} images or more, crops are boxes of",
            f"{photos.labelled_crop[0]:g}-1 (not px32 from scratch), and RandAugment, erasing and, with",
            f"{photos.mixed_from:,} labels, mixing join.\n",
            *(note(p.name, f"Source: {p.source}") for p in _PRESETS),
        ]
    )


_HEAD = ("preset", "input px", "images px", "patch px", "network", "pool", "mirror", "base lr", "epochs", "batch")


def _row(p: Preset) -> tuple[str, ...]:
    least, most = p.sides
    sides = f"from {least}" if most is None else f"{least}-{most}"
    size = f"own/{p.input}" if p.own_size else str(p.input)
    epochs = f"{p.scratch.epochs}/{p.labelled_epochs}"
    return (
        p.name, size, sides, ",".join(map(str, p.patches)), p.network, p.pool, "yes" if p.flip else "no",
        "/".join(map(short, p.base_lr.values())), epochs, str(p.labelled_batch),
    )  # fmt: skip
