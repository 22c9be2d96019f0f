"""What config.json of an exported folder may hold: names, kinds and ranges; everything else is refused by its name."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any, cast, get_args

from ssl_vit.configs import LabelledDataConfig, PoolConfig
from ssl_vit.core.errors import UserError
from ssl_vit.models.backbone import Pool

_MOST_CHANNELS, _LARGEST_SIDE = 4096, 1 << 16
_INIT = ("xavier", "trunc_normal", None)


def check_config(config: dict[str, Any]) -> dict[str, Any]:
    """The same config, once what is read of it is what it should be.

    Args:
        config: As it stands in the file. What nobody reads is not looked at.

    Raises:
        UserError: Naming the first value that is none.
    """
    pretrained, about = config.get("pretrained_cfg"), config.get("ssl_vit", {})
    for name, group in (("pretrained_cfg", pretrained), ("ssl_vit", about)):
        _check(name, group, isinstance(group, dict), "values by name")
    pretrained, about = cast("dict[str, Any]", pretrained), cast("dict[str, Any]", about)
    mean, std, size = (pretrained.get(name) for name in ("mean", "std", "input_size"))
    for name, value, least in (("mean", mean, -math.inf), ("std", std, 0.0)):
        numbers = _list_of(value, lambda one, least=least: math.isfinite(one) and one > least)
        _check(f"pretrained_cfg.{name}", value, numbers, "a list of numbers, one for each channel")
    _check("pretrained_cfg.std", std, len(std or ()) == len(mean or ()), "as many numbers as mean")
    if size is not None:
        sides = _list_of(size, lambda one: isinstance(one, int) and 0 < one <= _LARGEST_SIDE)
        _check("pretrained_cfg.input_size", size, sides and len(size) == 3, "channels, height and width")
    for name, allowed in (("bits", (8, 16)), ("pool", get_args(Pool)), ("init", _INIT)):
        if name in about:
            words = f"one of {', '.join(map(str, allowed))}"
            _check(f"ssl_vit.{name}", about[name], about[name] in allowed, words)
    for name, kind in (("data", PoolConfig), ("eval_data", LabelledDataConfig)):
        if name in about:
            known = {field.name for field in fields(kind)}
            given = about[name]
            _check(f"ssl_vit.{name}", given, isinstance(given, dict) and given.keys() <= known, "options of images")
            plain = all(value is None or isinstance(value, str | int | float) for value in given.values())
            _check(f"ssl_vit.{name}", given, plain, "options of images")
    for name in ("objective", "method", "preset", "positions", "import", "pool_fingerprint"):
        if name in about:
            _check(f"ssl_vit.{name}", about[name], about[name] is None or isinstance(about[name], str), "text")
    if "classifier" in about:
        _check_classifier(about["classifier"])
    return config


def _check_classifier(meaning: Any) -> None:
    _check("ssl_vit.classifier", meaning, isinstance(meaning, dict), "values by name")
    names = meaning.get("names")
    whole = isinstance(names, list) and bool(names) and all(isinstance(name, str) for name in names)
    _check("ssl_vit.classifier.names", names, whole, "a list of names")
    kinds = ("class", "multilabel", "regression")
    _check("ssl_vit.classifier.kind", meaning.get("kind"), meaning.get("kind") in kinds, "what labels are")
    _check("ssl_vit.classifier.pool", meaning.get("pool"), meaning.get("pool") in get_args(Pool), "a way of pooling")
    for name in ("target_mean", "target_std"):
        if "target_mean" in meaning or "target_std" in meaning:
            given = meaning.get(name)
            numbers = _list_of(given, math.isfinite) and len(given) == len(names)
            _check(f"ssl_vit.classifier.{name}", given, numbers, "a number for each name")


def _list_of(value: object, holds: Callable[[Any], bool]) -> bool:
    """Whether a value is a list of a bounded number of numbers of which something holds."""
    return (
        isinstance(value, list)
        and 0 < len(value) <= _MOST_CHANNELS
        and all(isinstance(one, int | float) and not isinstance(one, bool) and holds(one) for one in value)
    )


def _check(name: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise UserError(f"{name} in config.json must be {expected}, not {str(value)[:100]}")
