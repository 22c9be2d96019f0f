"""One optimiser step of any objective: forward and backward passes, clipping, optimiser, the objective's own hooks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from accelerate import Accelerator
from accelerate.utils import DDPCommunicationHookType
from torch import Tensor

from ssl_vit.configs import ResolvedFit, ResolvedOptim
from ssl_vit.core.dist import gather_rows
from ssl_vit.core.parts import clip_whole, norms
from ssl_vit.core.schedules import warmup_cosine
from ssl_vit.models.backbone import Backbone
from ssl_vit.objectives.base import Clock, Objective, StepOutput
from ssl_vit.training.compiling import compiles, forgive
from ssl_vit.training.continuing import Continuing
from ssl_vit.training.launch import DTYPES
from ssl_vit.training.optim import clip_each, make_optimizer, parameter_groups, warmup_steps
from ssl_vit.training.products import training_attention
from ssl_vit.training.sharding import Sharding

_LAUNCH_BOUND = 0.01
"""Seconds of arithmetic below which a forward and backward pass waits for its hundreds of kernels to be launched."""

Span = Callable[[str], AbstractContextManager[object]]
"""Marks a part of the step by name, where somebody looks."""


class Stepper:
    """Trains an objective, one call per optimiser step; nothing in it waits for the device."""

    def __init__(
        self,
        objective: Objective,
        *,
        fit: ResolvedFit,
        optim: ResolvedOptim,
        accelerator: Accelerator,
        continuing: Continuing | None = None,
        sharded: bool = False,
    ) -> None:
        """Moves the objective to the device and makes its optimiser, of a run that begins with weights its own.

        ``sharded`` leaves every process a part of everything.
        """
        objective.to(accelerator.device, dtype=DTYPES.get(fit.precision))
        self.sharding = Sharding(objective, accelerator, fit.gradient_hook) if sharded else None
        self.objective, self.fit, self.optim = objective, fit, optim
        self.accelerator, self.accumulation = accelerator, 1
        self.graphs = self.compiled = False
        self.continuing = continuing
        self.skipped: Tensor | int = 0
        """Steps of fp16 that were not taken, because a gradient was too large for it."""
        groups = (
            parameter_groups(
                objective.named_parameters(),
                weight_decay=optim.weight_decay,
                layer_decay=optim.layer_decay,
                layer_id=objective.layer_id,
                top_layer=objective.top_layer,
                decays_tokens=objective.decays_tokens,
                undecayed=_undecayed(objective),
            )
            if continuing is None
            else continuing.groups(objective, optim)
        )
        self._scales = [(group["lr_scale"], group["decays"], "held" in group) for group in groups]
        self.model: Any = objective
        self.optimizer: Any = make_optimizer(groups, optim)
        self.trained = [p for p in objective.parameters() if p.requires_grad]

    def prepare(self, accumulation: int, seconds: float = 1.0, steps: int = 0) -> None:
        """Before the first step: layout, compilation, the other processes.

        Args:
            accumulation: Forward passes per step on each process.
            seconds: Least time that one of them can take on this device: where it is short, launching kernels takes
                longer than running them, and a compiled pass becomes a CUDA graph.
            steps: Of the whole run.

        Raises:
            UserError: When something is to be compiled without a compiler.
        """
        self.accumulation = accumulation
        alone = accumulation == self.accelerator.num_processes == 1
        self.graphs = self.accelerator.device.type == "cuda" and alone and seconds < _LAUNCH_BOUND
        asked = self.fit.channels_last
        together = self.accelerator.device.type == "cuda" if asked is None else asked
        for part in self.objective.modules():
            if isinstance(part, Backbone) and together and self.sharding is None:
                part.keep_channels_together()
        if self.sharding is not None:
            self.optimizer = self.accelerator.prepare_optimizer(self.optimizer, device_placement=False)
            return
        here = compiles(self.fit.compile, self.accelerator.device, seconds, steps * accumulation)
        # The same on every process: each has measured the time by itself.
        self.compiled = bool(gather_rows(torch.tensor([here], device=self.accelerator.device)).all())
        if self.compiled:
            forgive(self.fit.compile is None)
            self.objective.compile_passes("reduce-overhead" if self.graphs else None)
        handler = cast(Any, self.accelerator).ddp_handler
        handler.static_graph = accumulation == 1  # torch's does not go together with passes that are not summed
        rounded = self.fit.gradient_hook == "bf16"
        handler.comm_hook = DDPCommunicationHookType.BF16 if rounded else DDPCommunicationHookType.NO
        # Said, because Accelerate would import DTensor to find it out, which takes two seconds.
        placed = [True, True]
        self.model, self.optimizer = self.accelerator.prepare(self.objective, self.optimizer, device_placement=placed)

    def __call__(
        self,
        clock: Clock,
        rate: float,
        inputs: Callable[[], dict[str, Tensor]],
        span: Span = nullcontext,
        judge: Callable[[Tensor, Tensor], None] | None = None,
    ) -> dict[str, Tensor]:
        """Takes a step with the top layer's learning rate; ``inputs`` gives what each forward pass reads.

        ``judge`` gets loss and norm of the gradient when all of it is there; what it raises keeps the step from being
        taken.

        What comes back are ``loss`` and the objective's metrics: means over the step's micro-batches on this process;
        in fp16 ``skipped_steps`` too, of the whole run.
        """
        self._schedule(clock, rate)
        self.objective.begin_step(clock)
        logged: dict[str, Tensor] = {}
        for micro in range(self.accumulation):
            given = inputs()
            if self.graphs:
                torch.compiler.cudagraph_mark_step_begin()
            with self._summed(micro == self.accumulation - 1), self._attention():
                with span("forward"):
                    output = self._pass(given)
                with span("backward"):
                    self.accelerator.backward(output.loss / self.accumulation)
            for name, value in {"loss": output.loss, **output.metrics}.items():
                share = value.detach() / self.accumulation
                logged[name] = logged[name] + share if name in logged else share
        with span("optimiser"):
            self.objective.after_backward(clock)
            if self.continuing is not None:
                self.continuing.after_backward(clock)
            if judge is not None:
                judge(logged["loss"], self.gradient_norm())
            self._clip()
            scaler: Any = self.accelerator.scaler
            before = None if scaler is None else scaler._scale.clone()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            if before is not None:  # a fused optimiser skips on the device: the host learns it from the smaller scale
                skipped: Tensor = self.skipped + (cast(Any, scaler)._scale < before)
                self.skipped = logged["skipped_steps"] = skipped
        with span("objective"):
            self.objective.after_step(clock)
        return logged

    def _summed(self, last: bool) -> AbstractContextManager[object]:
        """Sums gradients over processes in the last pass of a step."""
        if self.sharding is not None:
            return self.sharding.last_of_step(last)
        return nullcontext() if last else self.accelerator.no_sync(self.model)

    def _attention(self) -> AbstractContextManager[object]:
        """Around both passes: what the backward one computes again has to be what the forward one has computed."""
        on_cpu = self.accelerator.device.type == "cpu"
        return training_attention(self.accelerator.mixed_precision) if on_cpu else nullcontext()

    def _pass(self, given: dict[str, Tensor]) -> StepOutput:
        if self.sharding is None:
            return self.model(given)
        with self.accelerator.autocast():
            output: StepOutput = self.objective(given)
        return StepOutput(output.loss.to(torch.promote_types(output.loss.dtype, torch.float32)), output.metrics)

    def whole(self) -> Objective:
        """What was trained, with all of its weights, for what comes after; every process must call it."""
        return (
            self.objective if self.sharding is None else cast(Objective, self.sharding.whole(self.accelerator.device))
        )

    def gathered(self) -> AbstractContextManager[object]:
        """Weights are whole inside, for a look at the network; where they are in parts, every process must look."""
        return nullcontext() if self.sharding is None else self.sharding.gathered()

    def gradient_norm(self) -> Tensor:
        """Norm of the gradient of all parameters, before clipping; 0 in fp16, whose gradients are scaled."""
        grads = [p.grad for p in self.trained if p.grad is not None]
        if self.accelerator.scaler is not None or not grads:
            return torch.zeros((), device=self.accelerator.device)
        return norms(grads).square().sum().sqrt()

    def give_up(self) -> None:
        """Forgets a step that was not taken, before a checkpoint is loaded."""
        self.optimizer.zero_grad(set_to_none=True)
        self.objective.forget_step()

    def _schedule(self, clock: Clock, rate: float) -> None:
        decay = _weight_decay(self.optim, clock.step, clock.total_steps)
        pace = 1.0 if self.continuing is None else self.continuing.pace(clock)
        for group, (scale, decays, held) in zip(self.optimizer.param_groups, self._scales, strict=True):
            group["lr"] = rate * scale * (pace if held else 1.0)
            if decays:
                group["weight_decay"] = decay

    def _clip(self) -> None:
        each, whole = self.fit.clip_each, self.fit.clip_grad
        if each is None and whole is None:
            return
        self.accelerator.unscale_gradients(self.optimizer)
        if each is not None:
            clip_each(self.trained, each)
        if whole is not None and self.sharding is None:
            torch.nn.utils.clip_grad_norm_(self.trained, whole)
        elif whole is not None:
            clip_whole([p.grad for p in self.trained if p.grad is not None], whole)


def learning_rate(optim: ResolvedOptim, peak: float, steps_per_epoch: float, step: int, steps: int) -> float:
    """The rate of one step (0-based) of a run of so many, where the warm-up reaches ``peak``."""
    warmup, twice = warmup_steps(optim, steps, steps_per_epoch), optim.schedule == "peak_twice"
    return warmup_cosine(step, total_steps=steps, warmup_steps=warmup, peak=peak, final=optim.min_lr, peak_twice=twice)


def _undecayed(objective: Objective) -> set[str]:
    """Parameters that networks have named, by their names in the objective."""
    return {
        f"{name}.{own}"
        for name, part in objective.named_modules()
        if isinstance(part, Backbone)
        for own in part.undecayed()
    }


def _weight_decay(optim: ResolvedOptim, step: int, steps: int) -> float:
    """The weight decay of one step (0-based): constant, or on a half cosine (DINO, section 3.2)."""
    final = optim.weight_decay if optim.weight_decay_end is None else optim.weight_decay_end
    return warmup_cosine(step, total_steps=steps, warmup_steps=0, peak=optim.weight_decay, final=final)
