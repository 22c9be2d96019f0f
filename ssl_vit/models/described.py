"""Networks as a folder's config.json describes them, which somebody else may have written.

Only names that timm registers, arguments that a network's own class takes, plain values and bounded sizes: nothing here
opens a file or the network, whatever the description says.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from typing import Any

import timm
import torch
from timm.models import build_model_with_cfg

from ssl_vit.core.errors import UserError, did_you_mean, one_line
from ssl_vit.models.build import class_arguments, on_meta

_BUILDERS = (timm.create_model, build_model_with_cfg)
_NEVER = frozenset(
    {"device", "dtype"} | {name for builder in _BUILDERS for name in inspect.signature(builder).parameters}
) - {"num_classes", "in_chans"}  # fmt: skip
"""Arguments of what builds a network, and not of the network: some name files, addresses or code."""
_WORD = re.compile(r"[\w.+-]{0,64}")
"""Text that an argument may be: names of layers, no paths and no addresses."""
_COUNTS = re.compile(r"depth|layers|blocks|stages", re.IGNORECASE)
"""Arguments that say how many parts a network has: at least one tensor belongs to each."""
_LARGEST = 1 << 20
_VALUES, _NESTED = 1000, 4
_MORE = 4
"""A network may have so many times the numbers that its file holds: some are made and not kept."""


def check_described(
    architecture: object, args: object, weights: Mapping[str, torch.Tensor], pool: object = None
) -> dict[str, Any]:
    """The arguments that a description gives to a network, once they are known to be harmless.

    Args:
        architecture: timm's name of the network.
        args: Arguments by name.
        weights: What is to be loaded into it, by name.
        pool: How it pools, by timm's ``global_pool`` beside the arguments; used where there are no arguments.

    Returns:
        The arguments.

    Raises:
        UserError: For what is no network of timm's (or of ``ssl_vit.families``), an argument that it does not take, a
            value that is none, or a network that the weights cannot fill.
    """
    if not isinstance(architecture, str) or not re.fullmatch(r"\w+(\.\w+)?", architecture):
        raise UserError(f"architecture must be timm's name of a network, not {one_line(architecture)}")
    if not timm.is_model(architecture):
        raise UserError(
            f"architecture {architecture} is none of timm's{did_you_mean(architecture, timm.list_models())}"
        )
    if not isinstance(args, Mapping):
        raise UserError(f"model_args must be arguments by name, not {one_line(args)}")
    names, others = class_arguments(type(on_meta(architecture, {})))
    if not args and isinstance(pool, str):
        told = {"global_pool": pool, "fc_norm": "fc_norm.weight" in weights}
        args = {name: value for name, value in told.items() if name in names}
    for name, value in args.items():
        if name in _NEVER or not (name in names or (others and str(name).isidentifier())):
            raise UserError(f"model_args: {one_line(name)} is no argument of {architecture} that a folder may give")
        if not _is_plain(value, 0) or _count(value) > _VALUES:
            raise UserError(f"model_args: {name} {one_line(value)} is no number, word or list of them")
        if (most := _greatest(value)) > (len(weights) if _COUNTS.search(str(name)) else _LARGEST):
            raise UserError(f"model_args: {name} {most:,} is more than the {len(weights):,} weights can fill")
    try:
        sketch = on_meta(architecture, {name: value for name, value in args.items() if name != "num_classes"})
    except Exception as error:  # whatever a constructor raises at values that are none
        raise UserError(f"timm cannot build {architecture} with these model_args ({one_line(error)})") from error
    needed, there = (sum(w.numel() for w in state.values()) for state in (sketch.state_dict(), weights))
    if needed > _MORE * there + _LARGEST:
        raise UserError(f"{architecture} with these model_args has {needed:,} numbers, and the file {there:,}")
    return dict(args)


def _is_plain(value: object, depth: int) -> bool:
    if isinstance(value, str):
        return _WORD.fullmatch(value) is not None
    if isinstance(value, list | tuple):
        return depth < _NESTED and all(_is_plain(one, depth + 1) for one in value)
    if isinstance(value, Mapping):
        return depth < _NESTED and all(
            _is_plain(name, depth + 1) and _is_plain(one, depth + 1) for name, one in value.items()
        )
    return value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _parts(value: object) -> list[object]:
    return (
        list(value.values()) if isinstance(value, Mapping) else list(value) if isinstance(value, list | tuple) else []
    )


def _count(value: object) -> int:
    return 1 + sum(map(_count, _parts(value)))


def _greatest(value: object) -> float:
    """The largest number inside, without its sign; 0 where there is none."""
    if isinstance(value, int | float):
        return abs(value)
    return max(map(_greatest, _parts(value)), default=0)
