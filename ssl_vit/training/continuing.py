"""Continued pre-training: what is trained of a network that knows something already, when, and how fast."""

from __future__ import annotations

from typing import Any

from torch import nn

from ssl_vit.configs import ResolvedContinued, ResolvedOptim
from ssl_vit.core.errors import UserError
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.batchnorm import takes_batch_statistics
from ssl_vit.objectives.base import Clock, Objective
from ssl_vit.training.drift import Drift
from ssl_vit.training.optim import parameter_groups


def freeze_below(backbone: Backbone, blocks: int | None) -> None:
    """Leaves all but the last blocks, and what is above them, without gradients.

    Args:
        backbone: Whose parameters are trained or not as the method has it.
        blocks: How many stay trained; None for all.

    Raises:
        UserError: For more than there are, and where batch normalisation would move what is frozen.
    """
    if blocks is None:
        return
    if blocks > backbone.depth:
        raise UserError(
            f"--continued.blocks {blocks}: {backbone.architecture} has {backbone.depth}; leave it out for all"
        )
    if takes_batch_statistics(backbone):
        raise UserError(
            f"--continued.blocks {blocks}: {backbone.architecture} has batch normalisation, whose statistics would "
            "move in frozen blocks too; leave it out, or lower --continued.rate"
        )
    for name, parameter in backbone.named_parameters():
        if backbone.layer_id(name) <= backbone.depth - blocks:
            parameter.requires_grad_(False)


class Continuing:
    """The backbone's part in a run that begins with weights; heads and decoders are trained as in any other.

    In the first ``heads_first`` of the steps gradients of the backbone are thrown away before they are clipped, so that
    nothing of it moves and the optimiser keeps no averages of it. Over as many steps again its rate rises from 0 to
    its share, since random heads would still pull at it.
    """

    def __init__(self, objective: Objective, cfg: ResolvedContinued, drift: Drift) -> None:
        """Freezes the blocks that stay as they are; before the optimiser is made.

        Args:
            objective: Its trunk holds the starting weights.
            cfg: Resolved.
            drift: Looks at what would be exported.

        Raises:
            UserError: As ``freeze_below``.
        """
        self.cfg, self.drift = cfg, drift
        self._held: list[nn.Parameter] = []
        freeze_below(objective.trunk(), cfg.blocks)

    def groups(self, objective: Objective, optim: ResolvedOptim) -> list[dict[str, Any]]:
        """Parameter groups: what is ``held`` at first has the backbone's rates, everything else the full one.

        Args:
            objective: Whose trained parameters they are.
            optim: Weight decay, and layer decay within the backbone.
        """
        trunk = objective.trunk()
        inside = {parameter: name for name, parameter in trunk.named_parameters()}
        parts: dict[bool, list[tuple[str, nn.Parameter]]] = {False: [], True: []}
        for name, parameter in objective.named_parameters():
            parts[parameter in inside].append((inside.get(parameter, name), parameter))
        common = {"weight_decay": optim.weight_decay, "decays_tokens": objective.decays_tokens}
        heads = parameter_groups(parts[False], **common)
        own = parameter_groups(
            parts[True], layer_decay=optim.layer_decay, layer_id=trunk.layer_id, top_layer=trunk.depth + 1,
            undecayed=trunk.undecayed(), **common,
        )  # fmt: skip
        self._held = [parameter for group in own for parameter in group["params"]]
        return heads + [group | {"lr_scale": self.cfg.rate * group["lr_scale"], "held": True} for group in own]

    def pace(self, clock: Clock) -> float:
        """Share of its rate that the backbone has in a step: 0 while it is held, then on a line to 1."""
        held = round(self.cfg.heads_first * clock.total_steps)
        return min(1.0, max(0, clock.step + 1 - held) / max(1, held))

    def after_backward(self, clock: Clock) -> None:
        """Throws gradients of the backbone away while it is held: no step, no decay, no optimiser state."""
        if self.pace(clock) == 0:
            for parameter in self._held:
                parameter.grad = None

    def describe(self, steps: int, layer_decay: float) -> str:
        """Lines for the screen.

        Args:
            steps: Of the whole run.
            layer_decay: From each block to the one below.
        """
        cfg, held = self.cfg, round(self.cfg.heads_first * steps)
        trained = "" if cfg.blocks is None else f"the last {cfg.blocks} blocks of "
        return (
            f"continued       heads alone for {held:,} steps, then {trained}the backbone at {cfg.rate:g} of their "
            f"rate, times {layer_decay:g} from block to block downwards\n"
            f"drift alarm     every {cfg.look_percent:g} %, without labels: where less than {cfg.least_agreement:g} of "
            f"the starting network's neighbours are kept, or CKA is below {cfg.least_cka:g}, training stops and the "
            "last state within both limits is exported"
        )
