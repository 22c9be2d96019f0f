"""What makes two runs the same: the part of their options that changes results, and its hash."""

from __future__ import annotations

import hashlib
import json
from typing import Any, cast

from ssl_vit.configs import flat

_WITHOUT_EFFECT = [
    "preset",
    "run.dir",
    "verdict.budget",
    "verdict.jobs",
    "verdict.plan_only",
    "data.workers",
    "data.cache",
    "data.on_leak",
    "data.transductive",
    "eval.batch_size",
    "eval.precision",
    "eval.compile",
    "eval.keep_features",
    "eval.baselines",
    "eval.metric",
    "fit.epochs",
    "fit.min_steps",
    "fit.micro_batch",
    "fit.recompute",
    "fit.channels_last",
    "fit.compile",
    "fit.profile",
    "fit.log_every",
    "fit.checkpoint_steps",
    "fit.checkpoint_minutes",
    "fit.keep_checkpoints",
    "dino.export",
    "dino.on_collapse",
    "dino.collapse_patience",
    "dino.check_steps",
    "dino.loss_chunk",
]
"""Options that change neither the numbers of a run nor what they mean (preset: what it filled is
recorded option by option; epochs and least steps: a run may be extended; transductive: the images that it adds are
told by their fingerprint)."""

_OF_A_VERDICT = ("preset", "eval.metric")
"""But options of a verdict: it records them as given and not what they fill, and its numbers are of its metric."""


def digest(value: object) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of a value's JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def remove(tree: dict[str, Any], dotted: str) -> None:
    """Takes ``group.name`` out of a nested dictionary, in place; nothing happens where it has none."""
    *groups, last = dotted.split(".")
    for group in groups:
        tree = cast("dict[str, Any]", tree.get(group, {}))
    tree.pop(last, None)


def identity(config: dict[str, Any]) -> dict[str, Any]:
    """The part of a config that changes results."""
    copy = cast("dict[str, Any]", json.loads(json.dumps(config)))
    for option in _WITHOUT_EFFECT:
        if "verdict" not in config or option not in _OF_A_VERDICT:
            remove(copy, option)
    return copy


def differences(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Names that differ between two nested dictionaries as ``name old -> new``, at most five; empty where none do."""
    old, new = flat(before), flat(after)
    changed = [
        f"{key} {old.get(key)} -> {new.get(key)}" for key in sorted({*old, *new}) if old.get(key) != new.get(key)
    ]
    return "; ".join([*changed[:5], "..."] if len(changed) > 5 else changed)
