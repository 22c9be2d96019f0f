"""The model card: README.md of every exported folder, for people and for the Hugging Face hub."""

from __future__ import annotations

import functools
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from ssl_vit.configs import flat, networks
from ssl_vit.configs.protocols import by_method
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import write_atomically
from ssl_vit.core.reading import json_lines
from ssl_vit.exports.origin import made_with
from ssl_vit.runs.networks import weights_hash
from ssl_vit.runs.results import Result, compare, read_results, result_files

_BEGIN, _END = "<!-- results -->", "<!-- end of results -->"
"""Comments that nobody sees; what stands between them is written again with every result."""
_OPEN = {
    True: "Not judged yet. The run that trains a classifier ends with judging it: repeat its command.",
    False: "Nobody has judged it yet. On labelled images: `ssl-vit knn --backbone RUN`, "
    "`ssl-vit linear-probe --backbone RUN`.",
}
"""What stands there before the first one, by whether the network answers."""


def model_card(
    config: dict[str, Any],
    *,
    form: str = "timm",
    run: Path | None = None,
    weights: str = "",
    judged: bool = True,
    half: bool = False,
) -> str:
    """What an exported network is, how it was trained, what it was judged to be worth, and how to load it.

    Args:
        config: config.json of the folder.
        form: Kind of the files beside the card: timm, hf, onnx or torchscript.
        run: The run that made it, whose options and results are told.
        weights: Their hash, as results name them (``runs.networks.weights_hash``).
        judged: Whether a run that trains on labels has judged these weights already.
        half: Whether they were rounded to 16 bits after that.

    Raises:
        ValueError: Where the block of YAML on top is none.
    """
    about, given = config.get("ssl_vit", {}), config["pretrained_cfg"]
    labels = about.get("classifier")
    data = ModelCardData(
        library_name={"onnx": "onnx", "torchscript": "pytorch", "hf": "transformers"}.get(form, "timm"),
        pipeline_tag=_tag(labels),
        tags=["ssl_vit", "vision", *([] if labels else ["self-supervised-learning"])],
    )
    channels, size = given["input_size"][0], given["input_size"][-1]
    options = {} if run is None else made_with(run / "backbone")
    text = _template().render(
        head=data.to_yaml(),
        network=networks.in_words(config["architecture"], config["model_args"], size),
        objective=about.get("objective"),
        seed=None if about.get("soup") else options.get("seed", about.get("seed")),
        soup=about.get("soup"),
        images=_last((about.get("data") or {}).get("path")),
        labelled=_last((about.get("eval_data") or {}).get("path")),
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
        half=half,
        begins=_begins_with(about),
        training=_training(about, options, run),
        results=_section(config, run, weights, judged),
    )
    return str(ModelCard(text))


def tell_results(run: Path) -> None:
    """Writes a run's results into the model cards of its networks, and of the network that it fine-tuned.

    Nothing else in a card changes, because its owner may have added to it.

    Args:
        run: The directory that has a new result. Only the main process may ask for it.
    """
    told = [run, run.parent.parent] if run.parent.name == "finetune" else [run]
    for folder in (place / name for place in told for name in ("backbone", "classifier")):
        card = folder / "README.md"
        with suppress(
            OSError, ValueError, KeyError, TypeError, AttributeError
        ):  # no network, or a folder that somebody else owns
            before = card.read_text(encoding="utf-8")
            section = _section(read_config(folder), folder.parent, weights_hash(folder), True)
            after = re.sub(f"{_BEGIN}.*?{_END}", lambda _, new=section: new, before, count=1, flags=re.DOTALL)
            if after != before:
                own = card.with_name(f"README.md.{os.getpid()}")  # two evaluations may end at once
                write_atomically(own, after)
                own.replace(card)


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of an exported folder."""
    return json.loads((folder / "config.json").read_text())


@functools.cache
def _template() -> Any:
    from jinja2 import Environment, StrictUndefined  # not before a card is written: training need not wait for it

    kept = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    return kept.from_string((Path(__file__).parent / "card.md.jinja").read_text(encoding="utf-8"))


def _tag(labels: dict[str, Any] | None) -> str | None:
    """What the hub offers to do with it; nothing with numbers, of which it would make probabilities."""
    if not labels:
        return "image-feature-extraction"
    return None if labels["kind"] == "regression" else "image-classification"


def _last(place: str | None) -> str | None:
    """The name of images without the folders that lead to them, which are nobody else's business."""
    return place and Path(place).name


def _section(config: dict[str, Any], run: Path | None, weights: str, judged: bool) -> str:
    """What the network is worth: tables of the results that are about it."""
    answers = "classifier" in config.get("ssl_vit", {})
    results = [] if run is None else _results(run, weights, answers=answers, judged=judged)
    text = _OPEN[answers]
    if results:
        try:
            tables = [compare(results)]
        except UserError:  # they may not stand in one
            tables = [compare([result]) for result in results]
        text = "\n\n".join(table.markdown().removeprefix("# ").strip() for table in tables)
    return f"{_BEGIN}\n{text}\n{_END}"


def _results(run: Path, weights: str, *, answers: bool, judged: bool) -> list[Result]:
    """Results that are about a network of a run: what its training ended with, and what was made of its weights."""
    found: list[Result] = []
    for file in result_files(run):
        with suppress(UserError):  # damaged, or another version's
            found += read_results([file])
    own = [r for r in found if judged and r.path.parent == run / "results" and _trains(r)]
    return own if answers else own + [r for r in found if r not in own and (r.backbone or {}).get("weights") == weights]


def _trains(result: Result) -> bool:
    """Whether the run that wrote a result trained the network it is about."""
    protocol = by_method(result.method)
    return result.method == "supervised" or (protocol is not None and protocol.use == "train")


def _begins_with(about: dict[str, Any]) -> str | None:
    """Whose weights these are or went on from, where they were made elsewhere."""
    start = about.get("started_from") or {"weights": about.get("public"), "layout": about.get("layout")}
    layout = f" ({start['layout']})" if start.get("layout") else ""
    return start["weights"] and f"{_last(start['weights'])}{layout}"


def _training(about: dict[str, Any], options: dict[str, Any], run: Path | None) -> dict[str, str]:
    """The protocol of the training in words, from what the run and the export have on record."""
    fit, optim = options.get("fit") or {}, dict(options.get("optim") or {})
    found: dict[str, str] = {}
    if "images" in about:
        found["number of images"] = f"{about['images']:,}"
    if left := about.get("left_out"):
        found["left out"] = f"{left['images']:,} of {left['of']:,} images, which show test images"
    if fit.get("epochs"):
        last = _last_line(run)
        epochs = last.get("epoch", fit["epochs"])
        found["length"] = f"{epochs:.4g} epochs" + (f", {last['step']:,} steps" if "step" in last else "")
    if batch := fit.get("batch_size"):
        found["effective batch"] = f"{batch:,} images"
        rate, base = optim.pop("lr", None), optim.pop("base_lr", None)
        if rate or base:
            found["peak learning rate"] = f"{rate or base * batch / 256:.3g}"
    groups = {"optimiser": optim, "views": options.get("crops") or options.get("augment") or {}}
    loss = str(about.get("method")) if "supervised" not in options else "supervised"
    groups["loss"] = options.get(loss) or {}
    if teacher := about.get("teacher"):
        by, images = teacher.get("objective"), teacher.get("images")
        found["teacher"] = f"{teacher.get('network', teacher['architecture'])}, weights {teacher['weights']}"
        found["teacher"] += (f", trained by {by}" if by else "") + (f" on {images:,} images" if images else "")
    groups["what the teacher adds"] = {k: v for k, v in (options.get("taught") or {}).items() if k != "teacher"}
    for name, values in groups.items():
        if words := ", ".join(f"{key} {value}" for key, value in flat(values).items() if value is not None):
            found[name] = words
    return found


def _last_line(run: Path | None) -> dict[str, Any]:
    """The last line of a run's metrics.jsonl; empty where there is none."""
    lines = [] if run is None else json_lines(run / "metrics.jsonl").whole
    return lines[-1] if lines else {}
