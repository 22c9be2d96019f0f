"""What a backbone remembers of how it was made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ssl_vit.configs import DataConfig, LabelledDataConfig, PoolConfig, to_dict
from ssl_vit.configs.paths import folders
from ssl_vit.core.errors import UserError
from ssl_vit.core.reading import mapping_in
from ssl_vit.data.sources.locate import same_source
from ssl_vit.runs.identity import with_meaning


def made_with(backbone: Path) -> dict[str, Any]:
    """The options of the run around a backbone's folder; empty where there is none."""
    options = mapping_in(backbone.parent / "config.yaml")
    if options is None or "run" not in options:
        return {}  # somebody else's config.yaml
    return {group: values for group, values in with_meaning(options).items() if group != "run"}


def without_places(config: dict[str, Any]) -> dict[str, Any]:
    """config.json for others: of every folder or file on this machine only its own name, as model cards tell it.

    Args:
        config: Left as it is.
    """
    about: dict[str, Any] = config.get("ssl_vit") or {}
    told = {key: value if key == "classifier" else _last_names(value) for key, value in about.items()}
    return {**config, "ssl_vit": told} if about else config


def _last_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _last_names(one) for key, one in value.items()}
    if isinstance(value, str):  # several folders stand in one text, with commas between them
        return ",".join(Path(one).name if one.startswith(("/", "~")) else one for one in value.split(","))
    return value


def own_data(about: dict[str, Any], named: LabelledDataConfig) -> tuple[DataConfig, LabelledDataConfig]:
    """The data of the run that made a backbone, overridden by what the command line names.

    What the run was told of its labelled images still holds where the command line names the same ones by their path.

    Raises:
        UserError: When neither says where labelled images are.
    """
    made_on = about.get("data")
    if made_on is None:
        if named.path is None:
            raise UserError("the backbone does not say what it was trained on; name images with --eval.data.path")
        return DataConfig(), named
    own = PoolConfig(**made_on | {"on_leak": "drop"})  # of labelled images --eval.data.on_leak tells
    recorded = LabelledDataConfig(**about["eval_data"])
    if named.path is None or same_source(named.path, recorded.path or own.path):
        named = replace(recorded, **{k: v for k, v in to_dict(named).items() if v is not None})
    return own, named


def judged_otherwise(about: dict[str, Any], asked: LabelledDataConfig, named: LabelledDataConfig) -> bool:
    """Whether a backbone is judged on other images or labels than its run was told of.

    Args:
        about: What an exported backbone remembers.
        asked: What the command line names.
        named: What that comes to (``own_data``).
    """
    if asked.path is not None:
        return True
    told = LabelledDataConfig(**about["eval_data"])  # of an earlier version, maybe, which knew fewer options
    return _what_is_judged(named) != _what_is_judged(told)


def _what_is_judged(data: LabelledDataConfig) -> dict[str, Any]:
    """Without options that change how images are read, and with what is done about leaks where it changes which."""
    told = {k: v for k, v in _absolute(to_dict(data)).items() if k not in ("cache_size", "stream")}
    return told | {"on_leak": data.on_leak == "warn"}


def as_decoded(about: dict[str, Any], asked: DataConfig) -> tuple[int | None, int | None]:
    """Canvas and window in pixels: those that are asked for, else those that the training images were decoded with."""
    if asked.canvas or asked.window:
        return asked.canvas, asked.window
    own = about.get("data", {})
    return own.get("canvas"), own.get("window")


def recorded_data(data: DataConfig, judged_on: LabelledDataConfig) -> dict[str, Any]:
    """What an exported backbone remembers of its data; paths become absolute so that it may be used from anywhere."""
    return {"data": _absolute(to_dict(data)), "eval_data": _absolute(to_dict(judged_on))}


def _absolute(values: dict[str, Any]) -> dict[str, Any]:
    found = {name: values[name] for name in ("path", "labels") if values[name] not in (None, "digits")}
    there = {name: Path(path).expanduser() for name, path in found.items()}
    roots = {"root": ",".join(str(folder.resolve()) for folder in folders(values["root"])) or None}
    # A name on the hub stays one.
    return values | {name: str(place.resolve()) for name, place in there.items() if place.exists()} | roots
