"""What gives a number its meaning, and the one form of result files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ssl_vit.configs import EvalConfig, LabelsConfig
from ssl_vit.configs.presets import PRESETS, Preset, for_side
from ssl_vit.data.boxes import judged_share
from ssl_vit.data.images import ImageSet
from ssl_vit.data.sources.opening import Labelled
from ssl_vit.exports.timm_folder import Exported
from ssl_vit.runs.identity import digest, with_meaning


def result_of(
    method: str,
    rows: list[dict[str, Any]],
    options: dict[str, Any],
    *,
    data: Labelled,
    size: int,
    metric: str,
    cfg: LabelsConfig | EvalConfig,
    seed: int,
) -> dict[str, Any]:
    """The content of every result file: numbers, and the protocol that gives them their meaning.

    The protocol holds nothing that a table varies (number of labels, draw, seed, backbone): those stand beside it.
    Results of one ``protocol_hash`` may stand in one table, others may not (``ssl_vit.runs.results``).

    Args:
        method: Name of the evaluation.
        rows: One per method, the backbone's first.
        options: Groups of options of the evaluation, as asked for: what a default becomes may depend on the number of
            labels, the rule does not. Groups and options without meaning for a number are left out here.
        data: Training and test images.
        size: Side of the model's input in pixels.
        metric: What tables lead with.
        cfg: How many labels, which draw.
        seed: Seed of the evaluation.
    """
    train, test = data.train, data.test
    given = with_meaning({group: values for group, values in options.items() if group not in ("eval", "run")})
    protocol = {
        **given,  # what is judged, and how, stands below
        "evaluation": method,
        "kind": test.kind,
        "metric": metric,
        "view": view_protocol(test, size),
        "train": data.whole,
        "test": {"images": len(test), "fingerprint": test.fingerprint, "split": data.split},
    }
    return {
        "method": method,
        "rows": rows,
        "protocol": protocol,
        "protocol_hash": digest(protocol),
        "labels_used": len(train),
        "draw": None if cfg.labels is None else cfg.draw,
        "seed": seed,
        "data": {"name": test.name, "train": train.fingerprint, "test": test.fingerprint, "split": data.split},
    }


def view_protocol(images: ImageSet, size: int) -> dict[str, Any]:
    """What of an image evaluation looks at: the facts of ``views.eval_images``."""
    whole = judged_share(size) == 1.0
    share = "all of the short side" if whole else "7/8 of the short side (all of it where it is no larger)"
    return {**images.policy(), "crop": f"central square, {share}", "input": size}


def preset_of(exported: Exported, size: int) -> Preset:
    """The preset that a backbone was pre-trained with; the one for the size of the input where none is on record.

    Args:
        exported: The backbone.
        size: Side of the input in pixels.
    """
    known = exported.about.get("preset") or made_with(exported.folder).get("preset")
    return PRESETS.get(str(known)) or for_side(size)


def made_with(backbone: Path) -> dict[str, Any]:
    """The options of the run around a backbone's folder; empty where there is none."""
    config = backbone.parent / "config.yaml"
    try:
        options = yaml.safe_load(config.read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    if not isinstance(options, dict) or "run" not in options:
        return {}  # somebody else's config.yaml
    return {group: values for group, values in with_meaning(options).items() if group != "run"}
