"""Pre-training runs that are there before and named with ``--verdict.backbones``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ssl_vit.configs import ModelConfig
from ssl_vit.core.errors import UserError, reason
from ssl_vit.core.reading import loads, read_yaml
from ssl_vit.data.images import ImageSet
from ssl_vit.methods import METHODS, method_of
from ssl_vit.runs.identity import differences, identity
from ssl_vit.verdict.options import Comparison


def named_runs(cfg: Comparison, pool: ImageSet) -> tuple[dict[str, tuple[str, ...]], ModelConfig]:
    """Pre-training runs that were named, by method, and the network they have.

    Raises:
        UserError: For runs that are not finished, of other images, of several networks, or no replicates of each other:
            named twice, of one seed, or with different options.
    """
    if cfg.verdict.backbones is None:
        return {}, cfg.model
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name in filter(None, map(str.strip, cfg.verdict.backbones.split(","))):
        run = Path(name).expanduser().resolve()
        try:
            about = loads((run / "backbone" / "config.json").read_text())["ssl_vit"]
            made_of = loads((run / "environment.json").read_text())["data_fingerprint"]
            config = read_yaml(run / "config.yaml")
            start, _ = method_of(about).name, config["model"]
        except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
            raise UserError(
                f"--verdict.backbones {name} is no finished run of a method ({_why(run, error)})"
            ) from error
        if weights := config["model"].get("weights"):
            raise UserError(
                f"--verdict.backbones {name} went on from {weights}; what is compared begins with random weights"
            )
        if made_of != pool.fingerprint:
            raise UserError(
                f"--verdict.backbones {name} was pre-trained on other images than --data.path {cfg.data.path} (or the "
                "test images were other ones); give its --data and --eval.data options, or pre-train anew"
            )
        runs = found.setdefault(start, {})
        if str(run) in runs:
            raise UserError(
                f"--verdict.backbones names {name} twice; pre-training seeds are counted, name each run once"
            )
        runs[str(run)] = config
    models = [config["model"] for runs in found.values() for config in runs.values()]
    plain = [{k: v for k, v in model.items() if k != "positions"} for model in models]
    if any(model != plain[0] for model in plain):
        raise UserError(f"--verdict.backbones {cfg.verdict.backbones} have different networks; judge one at a time")
    for start, runs in found.items():
        _check_replicates(runs, METHODS[start].recipe)
    model = ModelConfig(**plain[0]) if cfg.model == ModelConfig() and plain else cfg.model
    return {start: tuple(runs) for start, runs in found.items()}, model


def _why(run: Path, error: Exception) -> str:
    """What is wrong with a folder that should be a run, in words for people."""
    if not run.is_dir():
        return "there is no such folder"
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return f"it holds no {Path(str(error.filename)).relative_to(run)}"
    if isinstance(error, KeyError):
        return f"its files record no {error.args[0]}"
    return "its files are damaged" if isinstance(error, TypeError) else reason(error)


def _check_replicates(runs: dict[str, dict[str, Any]], recipe: type[Any]) -> None:
    """Runs of one method are replicates: they differ in their seed, and in nothing else that changes results."""
    first, seeds = next(iter(runs)), dict[Any, str]()
    for name, other in runs.items():
        if told := differences(_options(runs[first], recipe), _options(other, recipe)):
            raise UserError(
                f"--verdict.backbones {first} and {name} were pre-trained with different options ({told}); runs of one "
                "method stand for its seeds, judge the others in a verdict of their own"
            )
        if (same := seeds.setdefault(other.get("seed"), name)) != name:
            raise UserError(
                f"--verdict.backbones {same} and {name} have one seed, {other.get('seed')}, so they are one "
                "pre-training; name one of them"
            )


def _options(config: dict[str, Any], recipe: type[Any]) -> dict[str, Any]:
    """What changes results, without the seed; the length does here."""
    return {k: v for k, v in identity(config, recipe).items() if k != "seed"} | {
        "epochs": config.get("fit", {}).get("epochs")
    }
