"""Optimisers and their parameter groups."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any

import torch
from torch import nn

from ssl_vit.configs import ResolvedOptim
from ssl_vit.configs.resolve import LARGEST_RATE
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.core.parts import local, norms

_TOKENS = (
    *("cls_token", "dist_token", "reg_token", "mask_token", "pos_embed", "pos_embed_x", "pos_embed_y"),
    *("pos_embed_prefix", "relative_position_bias_table", "rpe_table"),
    *("rel_pos_h", "rel_pos_w", "attention_biases"),
)


def parameter_groups(
    named: Iterable[tuple[str, nn.Parameter]],
    *,
    weight_decay: float,
    layer_decay: float = 1.0,
    layer_id: Callable[[str], int] = lambda name: 0,
    top_layer: int = 0,
    decays_tokens: bool = True,
    undecayed: Container[str] = (),
) -> list[dict[str, Any]]:
    """Groups for a torch optimiser by weight decay and learning-rate scale, of what is trained.

    Biases and one-dimensional parameters never decay. The scale, ``lr_scale``, is
    ``layer_decay ** (top_layer - layer_id)`` (BEiT, as used by MAE's fine-tuning). Beside it there are ``names`` and
    whether the group ``decays``.

    Args:
        named: Names and parameters; those without gradient are left out.
        weight_decay: For the parameters that decay.
        layer_decay: Factor from each layer to the one below, in (0, 1].
        layer_id: Layer of a parameter's name.
        top_layer: The layer with the full learning rate.
        decays_tokens: Whether class and distillation token, registers, mask token and positions, also relative ones,
            decay too.
        undecayed: Names of others that do not, unless tokens decay, too.
    """
    groups: dict[tuple[float, bool], dict[str, Any]] = {}
    for name, parameter in named:
        if not parameter.requires_grad:
            continue
        own = name.rpartition(".")[2]
        decays = parameter.ndim > 1 and own != "bias"
        decays = decays and (decays_tokens or not (own in _TOKENS or name in undecayed))
        decay, scale = weight_decay if decays else 0.0, layer_decay ** (top_layer - layer_id(name))
        empty = {"params": [], "names": [], "weight_decay": decay, "lr_scale": scale, "decays": decays}
        group = groups.setdefault((scale, decays), empty)
        group["params"].append(parameter)
        group["names"].append(name)
    return list(groups.values())


class LARS(torch.optim.Optimizer):
    """Layer-wise adaptive rate scaling (You et al. 2017), as MAE's linear probe uses it.

    A matrix's step, weight decay included, is scaled by trust x norm of the matrix / norm of the step before it enters
    the momentum; biases and other one-dimensional parameters take plain momentum steps without decay.
    """

    def __init__(
        self, params: Iterable[Any], lr: float, *, momentum: float = 0.9, weight_decay: float = 0.0, trust: float = 1e-3
    ) -> None:
        """Takes parameters or groups of them.

        Args:
            params: As for every torch optimiser.
            lr: Learning rate.
            momentum: Share of the last step that is kept.
            weight_decay: Added to the gradient of matrices, times the weight.
            trust: Length of a step as a share of the weights' norm, at learning rate 1 and without momentum.
        """
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One update of every parameter that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                step = parameter.grad
                if parameter.ndim > 1:
                    step = step + group["weight_decay"] * parameter
                    size, length = parameter.norm(), step.norm()
                    ratio = torch.where((size > 0) & (length > 0), group["trust"] * size / length, 1.0)
                    step = step * ratio
                state = self.state[parameter]
                if "velocity" not in state:
                    state["velocity"] = torch.zeros_like(parameter)
                state["velocity"].mul_(group["momentum"]).add_(step)
                parameter.sub_(group["lr"] * state["velocity"])


def clip_each(parameters: Iterable[nn.Parameter], largest: float) -> None:
    """Scales every parameter's own gradient to at most this norm, as DINO's code does (not the global norm)."""
    grads = [p.grad for p in parameters if p.grad is not None]
    if grads:
        factors = list((largest / (norms(grads) + 1e-6)).clamp(max=1.0))
        torch._foreach_mul_([local(g) for g in grads], factors)  # pyright: ignore[reportPrivateImportUsage]


def make_optimizer(groups: list[dict[str, Any]], cfg: ResolvedOptim) -> torch.optim.Optimizer:
    """The optimiser that ``--optim.name`` says; learning rates are set by the loop before every step."""
    clean = [{k: v for k, v in g.items() if k not in ("names", "decays", "held")} for g in groups]
    match cfg.name:
        case "adamw":
            fused = clean[0]["params"][0].dtype in (torch.float32, torch.float64)
            return torch.optim.AdamW(clean, lr=0.0, betas=cfg.betas, fused=fused)
        case "sgd":
            return torch.optim.SGD(clean, lr=0.0, momentum=cfg.momentum)
        case "lars":
            return LARS(clean, lr=0.0, momentum=cfg.momentum)


def restore(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Loads an optimiser's state dict; averages are laid out in memory as the parameters are now.

    The fused kernel walks through both side by side, wherever their numbers belong: averages that were saved in another
    layout (``--fit.channels_last``) would silently meet other parameters.
    """
    optimizer.load_state_dict(state)
    for parameter, kept in optimizer.state.items():
        for name, value in kept.items():
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                kept[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def peak_learning_rate(cfg: ResolvedOptim, batch_size: int) -> float:
    """The given learning rate, or the base rate scaled linearly with the effective batch size (Goyal et al. 2017)."""
    return cfg.base_lr * batch_size / 256 if cfg.lr is None else cfg.lr


def warn_of_rate(cfg: ResolvedOptim, batch_size: int) -> None:
    """One line where scaling with the batch leads AdamW further than anybody has published; what is named is right."""
    peak = peak_learning_rate(cfg, batch_size)
    if cfg.name == "adamw" and cfg.lr is None and peak > LARGEST_RATE * (1 + 1e-9):
        say_once(
            f"warning: --optim.base_lr {cfg.base_lr:g} x {batch_size:,} / 256 images is a learning rate of {peak:.3g}; "
            f"AdamW's is rarely above {LARGEST_RATE:g}; lower --optim.base_lr (MAE's paper: 1.5e-4 at batches of "
            "4,096), or name the rate itself with --optim.lr"
        )


def warmup_steps(cfg: ResolvedOptim, steps: int, steps_per_epoch: float) -> int:
    """Optimiser steps that warm up, of so many.

    Raises:
        UserError: Where the warm-up in epochs leaves nothing of the run.
    """
    if cfg.warmup_epochs is None:
        return round(cfg.warmup * steps)
    warmup = round(cfg.warmup_epochs * steps_per_epoch)
    if warmup >= steps:
        raise UserError(
            f"--optim.warmup_epochs {cfg.warmup_epochs:g} is all of the run's {steps / steps_per_epoch:.3g} epochs; "
            "give fewer, or more --fit.epochs"
        )
    return warmup
