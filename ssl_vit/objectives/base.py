"""What the loop asks of an objective."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from jaxtyping import Float
from torch import Tensor, nn

from ssl_vit.data.images import ImageSet
from ssl_vit.data.scale import PixelScale
from ssl_vit.models.backbone import Backbone
from ssl_vit.views.training import View


@dataclass(frozen=True)
class Clock:
    """Where in a run an optimiser step is; everything scheduled is a pure function of it."""

    step: int
    """Optimiser step about to be taken (or just taken), 0-based."""
    total_steps: int
    """Steps of the whole run."""
    steps_per_epoch: float
    """Training images / effective batch size; batches cross epoch boundaries."""

    @property
    def epoch(self) -> float:
        """Passes over the data before this step."""
        return self.step / self.steps_per_epoch


class StepOutput(NamedTuple):
    """What one forward pass returns."""

    loss: Float[Tensor, ""]
    """Mean over the local batch."""
    metrics: dict[str, Tensor]
    """Detached scalars, averaged over micro-batches and processes by ``fit``."""


class Objective(nn.Module, ABC):
    """A loss and the modules it trains. Only ``forward`` runs under DDP; the hooks act on the module itself."""

    decays_tokens: bool = True
    """Whether class token, positions and other non-bias parameters of more than one dimension get weight decay
    (MAE pre-training, DINO) or are exempt (fine-tuning)."""

    batch_statistics: bool = False
    """Whether the loss takes statistics over a micro-batch of all processes: they then change the results."""

    answers: int | None = None
    """Answers that it tells images apart by: there should be many more than classes. None where it has none."""

    export_note: str = ""
    """What is told behind the method's title of an exported backbone that is not the usual one."""

    origin: Mapping[str, Any] = MappingProxyType({})
    """What an exported backbone owes to other networks, recorded beside it."""

    smaller: tuple[str, ...] = ()
    """Options of its own that save memory, for the message where there is too little."""

    @abstractmethod
    def forward(self, inputs: dict[str, Tensor]) -> StepOutput:
        """The loss of one micro-batch, a deterministic function of the parameters and what the view drew."""

    def exported(self) -> Backbone:
        """The backbone that evaluation loads: where nothing else is said, what is called ``backbone``."""
        return cast(Backbone, self.backbone)

    def trunk(self) -> Backbone:
        """The backbone that gradients reach: the exported one, where nothing else is said."""
        return self.exported()

    def layer_id(self, name: str) -> int:
        """Depth of a parameter for layer-wise learning-rate decay; the largest id keeps the full rate."""
        return 0

    @property
    def top_layer(self) -> int:
        """The largest ``layer_id``."""
        return 0

    def begin_step(self, clock: Clock) -> None:
        """Before the first forward pass of a step: fill scheduled tensors."""

    def after_backward(self, clock: Clock) -> None:
        """After the last backward pass, before clipping and the optimiser."""

    def after_step(self, clock: Clock) -> None:
        """After the optimiser: moving averages."""

    def beside(self) -> dict[str, dict[str, Tensor]]:
        """Files of tensors by name (``NAME.safetensors``) that lie beside the exported backbone; timm ignores them."""
        return {}

    def prepare(
        self, images: ImageSet, scale: PixelScale, folder: Path, seed: int, kept: Callable[[str], Tensor | None]
    ) -> None:
        """Before the first step of every start, on every process: what is made of the images once and then kept.

        Args:
            images: What is trained on.
            scale: Pixel statistics.
            folder: The run's directory, which the main process may write to.
            seed: Of the run.
            kept: A tensor of this objective by its name in the newest checkpoint; None where there is none.
        """

    def encoded(self, inputs: dict[str, Tensor]) -> Tensor | None:
        """All that the network makes of what it may see, where parts of an image are hidden; else None.

        What hidden pixels show has no influence on it.
        """
        return None

    def forget_step(self) -> None:
        """A step was given up before its ``after_step``, and a checkpoint was loaded: what it left is thrown away."""

    def compile_passes(self, mode: str | None) -> None:
        """From now on both passes run compiled, for static shapes; "reduce-overhead" captures CUDA graphs."""
        self.compile(dynamic=False, mode=mode)

    def describe(self, steps: int) -> str:
        """Lines on what the resolved options come to in a run of so many steps, for the screen; empty for none."""
        return ""

    def observed(self) -> dict[str, float]:
        """Numbers over all processes about the step just taken, for health.jsonl; empty where it was not looked at."""
        return {}

    def stop_reason(self) -> str | None:
        """Why the run must stop after the step just taken, the same on every process; None to go on."""
        return None


def train_all(backbone: Backbone, freeze_positions: bool) -> None:
    """Has all of a backbone trained, but for a position embedding that is a fixed (sine-cosine) table."""
    for name, parameter in backbone.named_parameters():
        parameter.requires_grad_(not (freeze_positions and name.endswith("pos_embed")))


class Built(NamedTuple):
    """What a method's ``build`` makes."""

    objective: Objective
    view: View
    sees: str
    """What the network sees of an image, in words."""
    notes: tuple[str, ...] = ()
    """What the user should know beside it."""
    reads: int = 0
    """Side in pixels that the view cuts, where that is more than the network's input."""
    settled: Any = None
    """The method's own options with what only building could tell; None: as they were."""
