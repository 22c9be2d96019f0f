"""DINO (Caron et al. 2021, "Emerging Properties in Self-Supervised Vision Transformers"): self-distillation, no labels.

A student sees all views of an image, a teacher (the student's running average) only the large ones; the student learns
to give the teacher's answer to another view of the same image.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Sequence
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ssl_vit.core.dist import rank_and_world, sum_over_ranks
from ssl_vit.core.parts import local
from ssl_vit.core.schedules import base_momentum, teacher_temperature, warmup_cosine
from ssl_vit.data.scale import PixelScale
from ssl_vit.methods.dino import ResolvedDINO, ResolvedDINORecipe
from ssl_vit.models.backbone import Backbone, Pool, Views, pooled_views
from ssl_vit.models.heads import ProjectionHead
from ssl_vit.models.vit import ViTBackbone
from ssl_vit.objectives.base import Built, Clock, Objective, StepOutput, train_all
from ssl_vit.objectives.distillation import LastLayer, LossParts, Teaching, cross_view_loss, sinkhorn_knopp
from ssl_vit.objectives.health import Observations, Watch, collapse_kind, explain_collapse, steps_between_looks
from ssl_vit.views.multicrop import by_size, views_for

_CHUNK = 2**26
"""Numbers in one chunk of outputs: 256 MB in fp32."""

_SETTLING = 50
"""Steps that a collapse must last at least: a new network gives all images nearly one answer until the centre, which
starts at zero and averages over ten steps, has caught up with it."""


class Branch(nn.Module):
    """A backbone and a head: what student and teacher both are."""

    def __init__(self, backbone: Backbone, head: ProjectionHead, pool: Pool) -> None:
        """Puts them together."""
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.pool: Pool = pool

    def features(self, views: Sequence[Views]) -> Float[Tensor, "B V E"]:
        """Pooled features of all views, those of one size in one batch."""
        return pooled_views(self.backbone, self.pool, views)


class DINO(Objective):
    """Cross-entropy between the teacher's answer to one view and the student's to another (equation 3).

    Batch normalisation, where a backbone has it, is in training mode in both: the teacher normalises by its own views,
    as the authors have it, and its running statistics, which are exported, are those of these passes, no average of
    the student's. Only parameters are averaged.
    """

    smaller = ("fewer --crops.local_crops",)

    def __init__(
        self, backbone: Backbone, cfg: ResolvedDINO, *, pool: Pool, batch_size: int, freeze_positions: bool = False
    ) -> None:
        """Adds a head, and a teacher that starts as a copy.

        Args:
            backbone: The student's; random or pre-trained.
            cfg: Resolved; sizes and temperatures are numbers.
            pool: What represents an image.
            batch_size: Effective batch size, for the teacher's momentum.
            freeze_positions: Leave the position embedding as it is (a sine-cosine table).
        """
        super().__init__()
        self.cfg, self.batch_size = cfg, batch_size
        self.batch_statistics, self.answers = cfg.centring == "sinkhorn", cfg.out_dim
        self.export_note = "student" if cfg.export == "student" else ""
        train_all(backbone, freeze_positions)
        if isinstance(backbone, ViTBackbone):
            backbone.antialias = False
        head = ProjectionHead(
            backbone.embed_dim, cfg.out_dim, hidden=cfg.head_hidden, bottleneck=cfg.head_bottleneck,
            layers=cfg.head_layers, fixed_gain=cfg.norm_last_layer,
        )  # fmt: skip
        self.student = Branch(backbone, head, pool)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.centre: Tensor
        self.register_buffer("centre", torch.zeros(cfg.out_dim))
        self.watch = Watch()
        # Sums of one step, in no buffer: DDP must not touch them, and between steps they are empty.
        self._taught: tuple[Tensor, ...] = ()
        self._taught_rows = 0
        self._observations: Observations | None = None
        self._health: dict[str, float] = {}
        self._complaint: str | None = None
        self._warned: set[str] = set()
        self._temperature = 1.0

    def exported(self) -> Backbone:
        """The backbone of the teacher, or of the student where that was asked for."""
        return (self.student if self.cfg.export == "student" else self.teacher).backbone

    def trunk(self) -> Backbone:
        """The student's, also where the teacher's is exported."""
        return self.student.backbone

    def momentum(self, clock: Clock) -> float:
        """Share of its weights that the teacher keeps after this step: a cosine to 1 (section 3.1)."""
        base = base_momentum(self.batch_size, clock.total_steps) if self.cfg.momentum is None else self.cfg.momentum
        return warmup_cosine(clock.step, total_steps=clock.total_steps, warmup_steps=0, peak=base, final=1.0)

    def compile_passes(self, mode: str | None) -> None:
        """Compiles what makes features; head and loss are few large products, and a loss in chunks by hand."""
        for branch in (self.student, self.teacher):
            branch.features = torch.compile(branch.features, dynamic=False, mode=mode)

    def describe(self, steps: int) -> str:
        """Outputs, and the teacher's momentum and temperature."""
        cfg = self.cfg
        start = self.momentum(Clock(0, steps, 1.0))
        chosen = "given" if cfg.momentum is not None else "from batch and steps"
        warm = f"{cfg.teacher_temp:g}"
        if cfg.teacher_warmup_epochs or (cfg.teacher_warmup and cfg.teacher_warmup_epochs is None):
            share = f"{cfg.teacher_warmup:.0%} of the"
            over = share if cfg.teacher_warmup_epochs is None else f"{cfg.teacher_warmup_epochs:g}"
            warm = f"{cfg.warmup_teacher_temp:g} to {warm} over {over} epochs"
        return (
            f"outputs         {cfg.out_dim:,}: a loss of ln({cfg.out_dim}) = {math.log(len(self.centre)):.3f} means "
            "uniform answers\n"
            f"teacher         keeps {start:.5g} of its weights per step at the start ({chosen}), 1 at the end; "
            f"temperature {warm}"
        )

    def begin_step(self, clock: Clock) -> None:
        """Sets the teacher's temperature, and looks at this step where it is time."""
        cfg, warmup = self.cfg, self.cfg.teacher_warmup_epochs
        if warmup is None:
            warmup = cfg.teacher_warmup * clock.total_steps / clock.steps_per_epoch
        self._temperature = teacher_temperature(
            clock.epoch, start=cfg.warmup_teacher_temp, final=cfg.teacher_temp, warmup_epochs=warmup
        )
        every = cfg.check_steps or steps_between_looks(clock.steps_per_epoch)
        looked_at = (clock.step + 1) % every == 0 or clock.step + 1 == clock.total_steps
        self._observations = Observations() if looked_at else None

    def forward(self, inputs: dict[str, Tensor]) -> StepOutput:
        """The loss of ``globals`` Float[B G C S S] and, where there are any, ``locals`` Float[B L C s s].

        With stochastic depth of the student there are ``drop_globals`` Float[B G *L] and ``drop_locals``.
        """
        with torch.no_grad():
            taught = self.teacher.head.bottleneck(self.teacher.features([(inputs["globals"], None)])).transpose(0, 1)
            layer = LastLayer(self.teacher.head.direction, self.teacher.head.gain)
            # The sum of the teacher's outputs, without making them: the last layer is linear.
            self._taught += (layer.outputs(taught.sum(dim=(0, 1)), layer.scale()),)
            self._taught_rows += taught.shape[0] * taught.shape[1]
        learnt = self.student.head.bottleneck(self.student.features(by_size(inputs)))
        parts = self._loss(learnt.transpose(0, 1), taught, layer)
        divergence = parts.loss.detach() - parts.entropy
        if self._observations is not None:
            self._observations.add(parts.marginal, parts.entropy, divergence)
        return StepOutput(parts.loss, {"teacher_entropy": parts.entropy, "kl": divergence})

    def _loss(self, learnt: Float[Tensor, "V B Z"], taught: Float[Tensor, "G B Z"], layer: LastLayer) -> LossParts:
        cfg, targets = self.cfg, None
        if cfg.centring == "sinkhorn":
            targets = sinkhorn_knopp(layer.outputs(taught, layer.scale()), self._temperature)
        teaching = Teaching(taught, layer, self.centre, self._temperature, targets)
        chunk = cfg.loss_chunk or max(1, _CHUNK // (len(learnt) * len(self.centre)))
        own = LastLayer(self.student.head.direction, self.student.head.gain)
        return cross_view_loss(learnt, own, teaching, temperature=cfg.student_temp, chunk=chunk)

    def after_backward(self, clock: Clock) -> None:
        """Leaves the last layer out of the first epochs: no step, no decay, no optimiser state."""
        if clock.epoch < self.cfg.freeze_last_layer:
            for parameter in self.student.head.last_layer():
                parameter.grad = None

    def after_step(self, clock: Clock) -> None:
        """Moves teacher and centre once, from all micro-batches and processes; looks for a collapse."""
        with torch.no_grad():
            # Only what is trained: a frozen table is equal in both.
            pairs = zip(self.teacher.parameters(), self.student.parameters(), strict=True)
            moved: list[tuple[Tensor, Tensor]] = [(t, s) for t, s in pairs if s.requires_grad]
            kept, now = [local(t) for t, _ in moved], [local(s) for _, s in moved]
            torch._foreach_lerp_(kept, now, 1.0 - self.momentum(clock))  # pyright: ignore[reportPrivateImportUsage]
            mean = sum_over_ranks(reduce(torch.add, self._taught)) / (self._taught_rows * rank_and_world()[1])
            self.centre.lerp_(mean.to(self.centre.dtype), 1.0 - self.cfg.centre_momentum)
        self._taught, self._taught_rows = (), 0
        if self._observations is not None:
            self._health = self._observations.read(self.centre)
            self._look(clock)

    def forget_step(self) -> None:
        """Sums over micro-batches, and a collapse that was seen after the checkpoint."""
        self._taught, self._taught_rows, self._observations = (), 0, None
        self._health, self._complaint = {}, None

    def observed(self) -> dict[str, float]:
        """What the last look showed, once; see ``health.Observations.read``."""
        health, self._health = self._health, {}
        return health

    def _look(self, clock: Clock) -> None:
        """Notes how long a collapse has lasted; every process sees the same outputs, and so stops at the same step."""
        patience = self.cfg.collapse_patience * clock.total_steps
        kind = collapse_kind(self._health)
        # At first, in the warm-up, a network that has learnt nothing gives all images one answer too.
        since = self.watch.look(kind if clock.step >= patience else None, clock.step)
        if kind is not None and since is not None and clock.step - since >= max(_SETTLING, patience):
            self._complaint = explain_collapse(kind, self._health, since + 1)
            if kind not in self._warned and self.cfg.on_collapse == "warn" and rank_and_world()[0] == 0:
                sys.stderr.write(f"warning: {self._complaint}\n")
            self._warned.add(kind)

    def stop_reason(self) -> str | None:
        """A collapse that has lasted too long."""
        if self._complaint is None or self.cfg.on_collapse == "warn":
            return None
        return f"{self._complaint}; --dino.on_collapse warn trains on"


def build(cfg: ResolvedDINORecipe, backbone: Backbone, scale: PixelScale, dtype: torch.dtype) -> Built:
    """Objective and view of one run; UserError for local crops that the backbone cannot read."""
    model = cfg.model
    seen = views_for(backbone, model, cfg.crops, cfg.dino.drop_path, scale, dtype)
    # The head has always been drawn one number after the backbone: runs of version 0.1 can be repeated bit for bit.
    torch.empty((), dtype=torch.int64).random_()
    objective = DINO(
        backbone, cfg.dino, pool=model.pool, batch_size=cfg.fit.batch_size,
        freeze_positions=model.positions == "sincos",
    )  # fmt: skip
    return Built(objective, *seen)
