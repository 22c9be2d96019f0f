"""Ranges of numeric options, checked before anything is imported or opened."""

from __future__ import annotations

import math
from typing import Any, cast

from ssl_vit.core.errors import UserError

_RANGES: dict[str, tuple[float, float]] = {
    "seed": (0, 2**32 - 1),
    "data.canvas": (1, math.inf),
    "data.window": (1, math.inf),
    "data.workers": (0, math.inf),
    "model.img_size": (1, math.inf),
    "model.patch_size": (1, math.inf),
    "model.width": (1, math.inf),
    "model.depth": (1, math.inf),
    "model.heads": (1, math.inf),
    "mae.decoder_width": (4, math.inf),
    "mae.decoder_depth": (1, math.inf),
    "mae.decoder_heads": (1, math.inf),
    "dino.out_dim": (2, math.inf),
    "dino.head_hidden": (1, math.inf),
    "dino.head_bottleneck": (1, math.inf),
    "dino.head_layers": (1, math.inf),
    "dino.student_temp": (1e-3, math.inf),
    "dino.teacher_temp": (1e-3, math.inf),
    "dino.warmup_teacher_temp": (1e-3, math.inf),
    "dino.teacher_warmup": (0, 1),
    "dino.centre_momentum": (0, 0.999999),
    "dino.momentum": (0, 1),
    "dino.freeze_last_layer": (0, math.inf),
    "dino.drop_path": (0, 0.999),
    "dino.collapse_patience": (1e-6, 1),
    "dino.check_steps": (1, math.inf),
    "dino.loss_chunk": (1, math.inf),
    "supervised.label_smoothing": (0, 0.999),
    "supervised.mixup": (0, 100),
    "supervised.cutmix": (0, 100),
    "supervised.drop_path": (0, 0.999),
    "supervised.ema_decay": (0, 0.999999),
    "supervised.head_hidden": (0, math.inf),
    "optim.lr": (1e-30, math.inf),
    "optim.base_lr": (1e-30, math.inf),
    "optim.min_lr": (0, math.inf),
    "optim.warmup": (0, 0.999),
    "optim.weight_decay": (0, math.inf),
    "optim.weight_decay_end": (0, math.inf),
    "optim.layer_decay": (1e-6, 1),
    "optim.momentum": (0, 0.999999),
    "fit.epochs": (1e-9, math.inf),
    "fit.min_steps": (0, math.inf),
    "fit.batch_size": (1, math.inf),
    "fit.micro_batch": (1, math.inf),
    "fit.statistics_batch": (1, math.inf),
    "fit.clip_grad": (1e-30, math.inf),
    "fit.clip_each": (1e-30, math.inf),
    "fit.log_every": (1, math.inf),
    "fit.checkpoint_steps": (1, math.inf),
    "fit.checkpoint_minutes": (0, math.inf),
    "fit.keep_checkpoints": (1, math.inf),
    "eval.labels": (1, math.inf),
    "eval.draw": (0, math.inf),
    "eval.batch_size": (1, math.inf),
    "knn.k": (1, math.inf),
    "knn.also": (1, math.inf),
    "knn.temperature": (0.02, math.inf),
    "linear.grid": (1e-30, math.inf),
    "linear.folds": (2, math.inf),
    "linear.default": (1e-30, math.inf),
    "linear.max_iter": (1, math.inf),
    "linear.rates": (1e-30, math.inf),
    "linear.decays": (0, math.inf),
    "linear.default_rate": (1e-30, math.inf),
    "linear.default_decay": (0, math.inf),
    "linear.passes": (1e-9, math.inf),
    "linear.min_steps": (1, math.inf),
    "linear.batch_size": (1, math.inf),
    "linear.heads": (1, math.inf),
    "optim.betas": (0, 0.999999999),
    "augment.crop_ratio": (1e-3, 1e3),
    "augment.magnitude": (0, 10),
    "augment.erasing": (0, 1),
    "crops.global_scale": (1e-6, 1),
    "crops.local_scale": (1e-6, 1),
    "crops.local_crops": (0, math.inf),
    "crops.local_size": (1, math.inf),
    "crops.ratio": (1e-3, 1e3),
    "crops.jitter": (0, 5),
    "crops.jitter_chance": (0, 1),
    "crops.grey": (0, 1),
    "crops.blur": (0, 1),
    "crops.blur_sigma": (1e-3, 100),
    "crops.solarise": (0, 1),
    "predict.batch_size": (1, math.inf),
    "verdict.labels": (1, math.inf),
    "verdict.per_class": (1, math.inf),
    "verdict.seeds": (1, math.inf),
    "verdict.probe_draws": (1, math.inf),
    "verdict.train_draws": (1, math.inf),
    "verdict.matched_draws": (0, math.inf),
    "verdict.trials": (1, math.inf),
    "verdict.length": (1e-6, math.inf),
    "verdict.pretraining": (1e-6, math.inf),
    "verdict.jobs": (0, math.inf),
    "figures.img_size": (1, math.inf),
    "figures.count": (1, 12),
}


def check_ranges(config: dict[str, Any], prefix: str = "") -> None:
    """Refuses numbers outside their option's range.

    Args:
        config: A recipe as nested dictionaries (``to_dict``).
        prefix: Where these stand in the recipe.

    Raises:
        UserError: Naming the option, the value and the range.
    """
    for name, value in config.items():
        dotted = prefix + name
        if isinstance(value, dict):
            check_ranges(cast("dict[str, Any]", value), dotted + ".")
            continue
        limits = _RANGES.get(dotted) or _RANGES.get(dotted.partition(".")[2])  # of a method's own group in a verdict
        if limits is None:
            continue
        low, high = limits
        numbers = cast("list[Any]", value) if isinstance(value, list) else [value]
        for number in numbers:
            if isinstance(number, (int, float)) and not low <= number <= high:
                least = "positive" if 0 < low < 1 and high == math.inf else f"at least {low:g}"
                most = "" if high == math.inf else f" and at most {high:g}"
                raise UserError(f"--{dotted} {number:g} must be {least}{most}")
