"""The model card: README.md of every exported folder, for people and for the Hugging Face hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData
from jinja2 import Environment, StrictUndefined

from ssl_vit.configs import networks
from ssl_vit.core.errors import UserError
from ssl_vit.runs.results import compare, read_results

_TEMPLATE = (
    Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    .from_string((Path(__file__).parent / "card.md.jinja").read_text(encoding="utf-8"))
)  # fmt: skip


def model_card(config: dict[str, Any], *, form: str = "timm", run: Path | None = None) -> str:
    """What an exported network is, what it was judged to be worth, and how to load it.

    Args:
        config: config.json of the folder.
        form: Kind of the files beside the card: timm, hf, onnx or torchscript.
        run: A run directory whose results are told.
    """
    about, given = config.get("ssl_vit", {}), config["pretrained_cfg"]
    labels = about.get("classifier")
    data = ModelCardData(
        library_name={"onnx": "onnx", "torchscript": "pytorch", "hf": "transformers"}.get(form, "timm"),
        pipeline_tag="image-classification" if labels else "image-feature-extraction",
        tags=["ssl_vit", "vision", *([] if labels else ["self-supervised-learning"])],
    )
    channels, size = given["input_size"][0], given["input_size"][-1]
    return _TEMPLATE.render(
        head=data.to_yaml(),
        network=networks.in_words(config["architecture"], config["model_args"], size),
        objective=about.get("objective"),
        seed=about.get("seed"),
        images=_last((about.get("data") or {}).get("path")),
        pool=about.get("pool"),
        width=config["num_features"],
        classes=labels and {"kind": labels["kind"], "names": labels["names"]},
        size=size,
        channels=channels,
        bits=about.get("bits", 8),
        mean=[round(v, 4) for v in given["mean"]],
        std=[round(v, 4) for v in given["std"]],
        crop=given["crop_pct"],
        registered=about.get("import"),
        odd=about.get("bits", 8) != 8 or channels not in (1, 3),
        form=form,
        numbers=_numbers(run),
    )


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of an exported folder."""
    return json.loads((folder / "config.json").read_text())


def _last(place: str | None) -> str | None:
    """The name of images without the folders that lead to them, which are nobody else's business."""
    return place and Path(place).name


def _numbers(run: Path | None) -> str | None:
    """The results of a run as a table of markdown; None where it was not judged, or not comparably."""
    try:
        found = compare(read_results([run])) if run else None
    except UserError:
        return None
    return None if found is None else found.markdown().removeprefix("# ").strip()
