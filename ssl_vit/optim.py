"""AdamW and its parameter groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from ssl_vit.configs import OptimConfig

_TOKENS = ("cls_token", "reg_token", "mask_token", "pos_embed", "pos_embed_x", "pos_embed_y", "pos_embed_prefix")


def parameter_groups(
    named: Iterable[tuple[str, nn.Parameter]],
    *,
    weight_decay: float,
    layer_decay: float = 1.0,
    layer_id: Callable[[str], int] = lambda name: 0,
    top_layer: int = 0,
    decays_tokens: bool = True,
) -> list[dict[str, Any]]:
    """Groups trainable parameters by weight decay and learning-rate scale.

    Biases and one-dimensional parameters never decay. The scale is ``layer_decay ** (top_layer - layer_id)``
    (BEiT, as used by MAE's fine-tuning).

    Args:
        named: Names and parameters; those without gradient are left out.
        weight_decay: For the parameters that decay.
        layer_decay: Factor from each layer to the one below, in (0, 1].
        layer_id: Layer of a parameter's name.
        top_layer: The layer with the full learning rate.
        decays_tokens: Whether class token, register, mask token and positions decay too.

    Returns:
        Groups for a torch optimiser, with ``names`` and ``lr_scale`` beside ``params`` and ``weight_decay``.
    """
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    for name, parameter in named:
        if not parameter.requires_grad:
            continue
        exempt = parameter.ndim <= 1 or name.endswith(".bias")
        exempt = exempt or (not decays_tokens and name.rpartition(".")[2] in _TOKENS)
        decay = 0.0 if exempt else weight_decay
        scale = layer_decay ** (top_layer - layer_id(name))
        group = groups.setdefault((scale, decay), {"params": [], "names": [], "weight_decay": decay, "lr_scale": scale})
        group["params"].append(parameter)
        group["names"].append(name)
    return list(groups.values())


def make_adamw(groups: list[dict[str, Any]], cfg: OptimConfig) -> torch.optim.AdamW:
    """AdamW in its fused form; learning rates are set by the loop before every step."""
    clean = [{k: v for k, v in g.items() if k != "names"} for g in groups]
    dtype = clean[0]["params"][0].dtype
    return torch.optim.AdamW(clean, lr=0.0, betas=cfg.betas, fused=dtype in (torch.float32, torch.float64))


def peak_learning_rate(cfg: OptimConfig, batch_size: int) -> float:
    """The given learning rate, or the base rate scaled linearly with the effective batch size (Goyal et al. 2017)."""
    if cfg.lr is not None:
        return cfg.lr
    assert cfg.base_lr is not None
    return cfg.base_lr * batch_size / 256
