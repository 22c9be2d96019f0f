"""What is trained for the questions: which networks, on which images, with how many labels. Needs no torch.

Questions ask for trainings by what they are. Two questions that need the same training share it, because equal
trainings are one key.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from ssl_vit.configs import ModelConfig
from ssl_vit.configs.networks import NETWORKS

SCRATCH = "scratch"
"""The start of a training without pre-training."""
VIT = "vit"
METHODS = ("mae", "dino", "lejepa")
"""What the ViT is pre-trained by."""
Images = Literal["whole", "patches", "pixels", "all"]
PERMUTED: tuple[Images, ...] = ("patches", "pixels", "all")
"""Fixed permutations: of patches, of pixels inside every patch alike, of all pixels."""
Positions = Literal["none", "learnable", "factorised", "sincos"]
POSITIONS: tuple[Positions, ...] = ("none", "learnable", "factorised", "sincos")
"""Kinds of a plain ViT's positions; learnable ones are one row per patch (1-D), factorised ones a row and a column
(2-D)."""
RELATIVE = "relative"
CNN = "resnet"
DOUBLINGS = 4
"""Of width and of depth, where time allows it."""


@dataclass(frozen=True)
class Net:
    """A network that takes part."""

    title: str
    """In tables and sentences."""
    look: str
    """The name of its colour and marker."""


NETS: dict[str, Net] = {
    VIT: Net("ViT", "scratch"),
    "hybrid": Net("hybrid ViT", "hybrid"),
    "cct": Net("CCT", "cct"),
    "swin": Net("Swin", "swin"),
    CNN: Net("ResNet", "cnn"),
    RELATIVE: Net("ViT with relative positions", "relative"),
}
OTHERS = ("hybrid", "cct", "swin", CNN)
"""Networks beside the ViT, the one most like it first."""
TITLES = {"mae": "MAE", "dino": "DINO", "lejepa": "LeJEPA"}
_STRIDE = {"hybrid": 4, "cct": 4, "swin": 4, CNN: 12}
"""Pixels of the input for one of the ViT's patches. Hybrid, CCT and Swin end in a map as fine as the ViT's patches. A
ResNet halves its input five times and would end in nothing; at 12 pixels it
has the ViT's operations."""
_RESNET: dict[str, dict[str, Any]] = {
    "micro": {"layers": [1, 1, 1, 1], "channels": [20, 40, 64, 80], "stem_width": 8, "stem_type": "deep"},
    "mini": {"layers": [1, 1, 1, 1], "channels": [48, 80, 160, 200], "stem_width": 20, "stem_type": "deep"},
}
"""For timm's constructor: at 8 px in patches of 2 and at 32 px in patches of 4, parameters and operations are within a
tenth of the ViT's of the same size. CCT, Swin and the hybrid are those of configs/networks.py: within 15 %, but for the
hybrid micro, whose stem is 64 channels wide whatever its size: 1.16 times the ViT's operations at 32 px in colour."""


@dataclass(frozen=True)
class Pretraining:
    """One run of a method on the ViT."""

    method: str
    seed: int
    width: int = 0
    """D of another size than the usual; 0 for the usual."""
    depth: int = 0

    @property
    def key(self) -> str:
        """Its name among files."""
        return f"pretrain-{self.method}{_size(self.width, self.depth)}-{self.seed}"


@dataclass(frozen=True)
class Training:
    """A network trained on one draw of labels; without labels, what it begins with."""

    net: str = VIT
    labels: int = 0
    """0: the network as it is before any label: random, or pre-trained."""
    draw: int = 0
    """Of labels; also what seeds weights, order and pre-training are counted by."""
    start: str = SCRATCH
    """``scratch``, or the method that pre-trained it."""
    images: Images = "whole"
    plain: bool = False
    """Whether images are not varied, where they usually are."""
    positions: Positions = "learnable"
    """Of a plain ViT."""
    width: int = 0
    depth: int = 0

    @property
    def key(self) -> str:
        """Its name among files; equal trainings have the same."""
        parts = [self.net, self.start, *([self.positions] if self.positions != "learnable" else [])]
        parts += [f"{self.images}-permuted"] if self.images != "whole" else []
        parts += ["plain"] if self.plain else []
        return f"{'-'.join(parts)}{_size(self.width, self.depth)}-{self.labels}-labels-draw-{self.draw}"

    @property
    def kind(self) -> str:
        """What its pace depends on: the network and its size."""
        return f"train-{self.net}{_size(self.width, self.depth)}"

    @property
    def pretraining(self) -> Pretraining | None:
        """What has to be made before; every draw has a run of its own."""
        return None if self.start == SCRATCH else Pretraining(self.start, self.draw, self.width, self.depth)

    @property
    def kept(self) -> bool:
        """Whether the network stays: something may be read off it later."""
        return self.start == SCRATCH and self.images == "whole" and not (self.width or self.depth)


def _size(width: int, depth: int) -> str:
    return (f"-width-{width}" if width else "") + (f"-depth-{depth}" if depth else "")


@dataclass(frozen=True)
class Look:
    """What is read off a network without training it further."""

    what: Literal["shifts", "blocks", "positions"]
    """Change of its features under shifts; attention and frequencies block by block; how alike positions are."""
    of: Training

    @property
    def key(self) -> str:
        """Its name among files."""
        return f"look-{self.what}-{self.of.key}"


@dataclass(frozen=True)
class Scope:
    """How much is done."""

    questions: tuple[str, ...]
    labels: tuple[int, ...]
    """Numbers of labels, ascending, all of them last."""
    draws: int
    steps: int
    """Of every training on labels."""
    seconds: float
    """Of the steps of one pre-training run of the usual size, as measured; a run is never longer than its preset's."""
    doublings: int
    """Of width, and of depth."""
    epochs: tuple[tuple[str, float], ...] = ()
    """Of pre-training, by method, as ``seconds`` came to."""
    size: Literal["micro", "mini"] = "micro"
    img_size: int = 8
    """Side of the ViT's input in pixels."""
    patch: int = 2
    """Side of its patches."""
    width: int = 64
    """Its width D."""
    depth: int = 4
    batch: int = 32
    """Images per step, of all training: small on a CPU, where a network this small learns more from many steps."""
    augmented: bool = False
    """Whether training images are varied at all; where not, plain trainings are all trainings."""

    @property
    def grid(self) -> int:
        """Patches along a side."""
        return self.img_size // self.patch

    def training(self, net: str = VIT, **options: Any) -> Training:
        """One that is the same for all questions where images are not varied anyway.

        Args:
            net: The network.
            options: Further fields of ``Training``; without ``labels``, all of them.
        """
        made = Training(net, **{"labels": self.labels[-1], **options})
        return made if self.augmented else replace(made, plain=False)

    def each_draw(self, training: Training) -> list[Training]:
        """The same training on every draw, with seeds of its own.

        Args:
            training: Of any draw.
        """
        return [replace(training, draw=draw) for draw in range(self.draws)]

    def widths(self) -> tuple[int, ...]:
        """From an eighth of the usual on, each twice the one before."""
        return tuple(self.width * 2**i // 8 for i in range(self.doublings + 1))

    def depths(self) -> tuple[int, ...]:
        """From one block on, each twice the one before."""
        return tuple(2**i for i in range(self.doublings + 1))

    def sized(self, width: int = 0, depth: int = 0, **options: Any) -> Training:
        """A ViT of another size; the usual one where the size is the usual.

        Args:
            width: D; 0 for the usual, or where a depth is given for half of it: depth is doubled at the width that
                costs less, and both axes have one network in common.
            depth: Blocks; 0 for the usual.
            options: As ``training``.
        """
        width = width or (self.width // 2 if depth else 0)
        width, depth = (0 if width == self.width else width), (0 if depth == self.depth else depth)
        return self.training(VIT, width=width, depth=depth, **options)

    def model(self, training: Training | Pretraining) -> ModelConfig:
        """The network of a training, as options say it.

        Args:
            training: Which.
        """
        net = training.net if isinstance(training, Training) else VIT
        if net == VIT:
            return ModelConfig(
                f"vit_{self.size}", img_size=self.img_size, patch_size=self.patch, width=training.width or self.width,
                depth=training.depth or self.depth, pool="mean",
                positions=training.positions if isinstance(training, Training) else "learnable",
            )  # fmt: skip
        if net == RELATIVE:
            args = {  # the ViT but for its positions
                "patch_size": self.patch, "embed_dim": self.width, "depth": self.depth,
                "num_heads": NETWORKS[f"vit_{self.size}"].heads,
                "class_token": True, "qkv_bias": True, "init_values": 0.0, "fc_norm": False, "rel_pos_type": "bias",
            }  # fmt: skip
            return ModelConfig("vit_relpos_small_patch16_224", img_size=self.img_size, args=args, pool="mean")
        side = _STRIDE[net] * self.grid
        if net == CNN:
            return ModelConfig("resnet18", img_size=side, args=_RESNET[self.size], pool="mean")
        return ModelConfig(f"{net}_{self.size}", img_size=side, pool="mean")


def start_title(start: str) -> str:
    """What people call what a ViT begins with.

    Args:
        start: ``scratch`` or a method.
    """
    return "ViT from scratch" if start == SCRATCH else f"ViT after {TITLES[start]}"
