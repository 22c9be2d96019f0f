"""--fit.shard: every process holds a part of each weight, its gradient and its averages (FSDP2, torch's fully_shard).

Whole weights are there only while they are used: those of one transformer block after another, and all others during a
pass. Arithmetic is DistributedDataParallel's: weights are gathered in their own precision, gradients are averaged.
What Accelerate's plugin of version 2 was told is followed (``accelerate launch --use_fsdp --fsdp_version 2``), but the
sharding itself is done here, because Accelerate does it on GPUs alone and nothing could then be tested without any.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
from accelerate import Accelerator
from torch import nn

from ssl_vit.configs import ResolvedFit, ResolvedOptim
from ssl_vit.core.dist import rank_and_world
from ssl_vit.core.errors import UserError
from ssl_vit.core.parts import full
from ssl_vit.models.blocks import is_block, run_parts
from ssl_vit.training import joining

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule


def is_sharded(fit: ResolvedFit) -> bool:
    """Whether a training with these options is sharded here: of one process there is nothing to share."""
    asked = joining.asks_to_shard() if fit.shard is None else fit.shard
    return asked and rank_and_world()[1] > 1


def check(fit: ResolvedFit, optim: ResolvedOptim, *, continued: bool, watched: bool) -> None:
    """Refuses what cannot be done with parts of weights.

    Args:
        fit: Options of the loop.
        optim: Of the optimiser.
        continued: Whether a drift alarm looks at the network.
        watched: Whether ``--fit.watch`` does.

    Raises:
        UserError: Naming the option.
    """
    refused = {
        "--fit.precision fp16, whose scaler is not made for parts; take bf16": fit.precision == "fp16",
        "--optim.name lars, whose rates are norms of whole layers": optim.name == "lars",
        "--fit.compile true": fit.compile,
        "--model.weights: the drift alarm looks at a whole network": continued,
        "--fit.watch, which looks at a whole network": watched,
    }
    for what, given in refused.items():
        if given:
            raise UserError(f"--fit.shard true does not go together with {what}; leave one of them out")


class Sharding:
    """Cuts an objective into parts, in place, and puts a whole one together at the end."""

    def __init__(self, objective: nn.Module, accelerator: Accelerator, gradient_hook: str | None = None) -> None:
        """Every process must call it, with the same weights; before the optimiser is made.

        Args:
            objective: On its device; its parameters become ``DTensor``.
            accelerator: Of the device.
            gradient_hook: ``bf16`` sums gradients in it.
        """
        # Here, because importing it takes two seconds, and what is not sharded needs nothing of it.
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

        device = accelerator.device
        self.spare = copy.deepcopy(objective).cpu()
        """What everything that comes after training is done with; it waits in the machine's memory."""
        self.objective = objective
        mesh = init_device_mesh(device.type, (accelerator.num_processes,))
        self.group: Any = torch.distributed.new_group(backend="gloo")
        """Where checkpoints are agreed on, beside training."""
        reduced = torch.bfloat16 if gradient_hook == "bf16" else None
        policy = MixedPrecisionPolicy(reduce_dtype=reduced)
        for part in objective.modules():
            if is_block(part):
                fully_shard(part, mesh=mesh, mp_policy=policy, reshard_after_forward=joining.reshards())
                cast(Any, part).run_as_forward = types.MethodType(run_parts, part)
                register_fsdp_forward_method(part, "run_as_forward")
        fully_shard(objective, mesh=mesh, mp_policy=policy)

    def _parts(self) -> list[FSDPModule]:
        from torch.distributed.fsdp import FSDPModule

        return [part for part in self.objective.modules() if isinstance(part, FSDPModule)]

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Weights are whole inside, for passes that are no training; every process must do the same."""
        for part in self._parts():
            part.unshard()
        try:
            yield
        finally:
            for part in self._parts():
                part.reshard()

    @contextmanager
    def last_of_step(self, last: bool) -> Iterator[None]:
        """Gradients are summed over processes in a step's last pass alone."""
        root = cast("FSDPModule", self.objective)
        root.set_requires_gradient_sync(last)
        try:
            yield
        finally:
            root.set_requires_gradient_sync(True)

    def whole(self, device: torch.device) -> nn.Module:
        """The objective with whole weights, on every process."""
        state = {name: full(value).cpu() for name, value in self.objective.state_dict().items()}
        self.spare.load_state_dict(state)
        return self.spare.to(device).train(self.objective.training)
