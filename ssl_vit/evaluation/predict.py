"""A classifier's answers for images without labels, as a table."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from PIL import Image

from ssl_vit.configs import LabelledDataConfig, PredictRecipe
from ssl_vit.configs.metrics import METRICS, shown
from ssl_vit.core.dist import gather_lists, gather_rows
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import write_bytes_atomically
from ssl_vit.data.decoding.decode import decode
from ssl_vit.data.decoding.visible import visible
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.loader import UnreadableLog, eval_batches
from ssl_vit.data.sources.known import KnownLabels, open_known
from ssl_vit.data.sources.locate import same_source
from ssl_vit.data.sources.opening import open_labelled
from ssl_vit.data.sources.part import file_of
from ssl_vit.data.sources.told import print_lines
from ssl_vit.evaluation.embedding import source_of, spare
from ssl_vit.evaluation.input_format import as_trained, check_format
from ssl_vit.exports.classifier import Labelling, TrainedClassifier, load_classifier
from ssl_vit.exports.origin import as_decoded, own_data
from ssl_vit.exports.timm_folder import Exported, network_words
from ssl_vit.methods import LABELLED
from ssl_vit.runs.results import read_results
from ssl_vit.training import launch
from ssl_vit.views.evaluation import eval_images

SUFFIXES = (".csv", ".parquet")
_WORDS = ("file", "prediction", "unreadable")
_OWN = (*_WORDS, "certainty")
_THUMBNAIL = 240
"""Longer side of a picture in pixels, at most; small images are enlarged by repeating pixels up to half of it."""


class Predicted(NamedTuple):
    """What a classifier says of images."""

    images: ImageSet
    labelling: Labelling
    answers: Float[np.ndarray, "n K"]
    """Probabilities, or numbers; NaN where an image cannot be read."""
    reasons: dict[int, str]
    """Why images cannot be read, by position."""
    words: str
    """How many images of which source."""
    judged: str
    """What the classifier was worth on test images; empty where that is not on record."""

    @property
    def certainty(self) -> Float[np.ndarray, " n"] | None:
        """How certain each answer is, None of numbers: the probability of the class, or of the least certain label."""
        if self.labelling.kind == "regression":
            return None
        if self.labelling.kind == "class":
            return self.answers.max(axis=1)
        return np.maximum(self.answers, 1 - self.answers).min(axis=1)

    def order(self) -> Int[np.ndarray, " n"]:
        """Positions, least certain first, unreadable ones last; as they are where there is no certainty."""
        found = self.certainty
        return np.arange(len(self.images)) if found is None else np.argsort(found.round(6), kind="stable")

    def file(self, i: int) -> str:
        """Where an image lies."""
        return file_of(self.images.rows, int(self.images.ids[i])) or self.images.where(i)


def predict(cfg: PredictRecipe) -> Predicted | None:
    """Applies a classifier to the images that were asked for, and says what it is applied to.

    Args:
        cfg: What ``--help`` lists.

    Returns:
        None on processes other than the main one.

    Raises:
        UserError: For a classifier or images that are not there, or do not fit each other.
    """
    accelerator = launch.join("fp32")
    classifier = load_classifier(cfg.classifier)
    labelling, exported = classifier.labelling, classifier.exported
    images, words = _chosen(exported, cfg)
    canvas, window = as_decoded(exported.about, cfg.data)
    images = as_trained(images, exported).on_canvas(canvas, exported.size, window)
    check_format(images, exported)
    launch.use_cores(accelerator, exported.size)
    judged = _judged(exported)
    if accelerator.is_main_process:
        what = {"class": "classes", "multilabel": "labels", "regression": "numbers"}[labelling.kind]
        print_lines([
            ("images", words),
            ("labels", str(exported.about.get("labels", "not on record"))),
            (what, f"{len(labelling.names):,}: {', '.join(labelling.names[:8])}{', ...' * (len(labelling.names) > 8)}"),
            *([("judged", judged)] if judged else []),
            ("network", f"{network_words(exported)}; {exported.folder} ({exported.weights_hash})"),
            ("input", f"{exported.size} px"),
        ])  # fmt: skip
    answers, reasons = answer(
        classifier, images, batch_size=cfg.predict.batch_size, workers=cfg.data.workers, device=accelerator.device
    )
    found = Predicted(images, labelling, answers, reasons, words, judged)
    return found if accelerator.is_main_process else None


def _chosen(exported: Exported, cfg: PredictRecipe) -> tuple[ImageSet, str]:
    """The images to predict, and how many of which they are."""
    source = source_of(exported, cfg.data)
    spare(Path(cfg.out).expanduser(), source)
    images, known = open_known(source)
    if cfg.predict.which == "all" or (cfg.predict.which == "auto" and cfg.data.path):
        return images, f"{len(images):,} images from {images.name}"
    chosen = np.flatnonzero(~_labelled(exported, images, known))
    if not len(chosen):
        raise UserError(
            f"every image of {images.name} has a label; name others with --data.path, or predict these with "
            "--predict.which all"
        )
    return images.subset(chosen), f"{len(chosen):,} of {len(images):,} images from {images.name}, those without a label"


def _labelled(exported: Exported, images: ImageSet, known: KnownLabels | None) -> Bool[np.ndarray, " n"]:
    """Which images have a label: beside them, or because the labelled images of the run are some of these files."""
    found = np.zeros(len(images), dtype=bool) if known is None else known.given
    try:
        data, judged_on = own_data(exported.about, LabelledDataConfig())
        if judged_on.path is None or same_source(judged_on.path, data.path):
            return found
        data = open_labelled(data, judged_on)
    except UserError:
        return found
    sets = [images, data.train, data.test]
    files, *named = ([file_of(s.rows, row) for row in s.ids.tolist()] for s in sets)
    there = {os.path.realpath(file) for part in named for file in part if file is not None}
    return found | np.array([file is not None and os.path.realpath(file) in there for file in files], dtype=bool)


def _judged(exported: Exported) -> str:
    """What the classifier's run has on record of its test images."""
    results = exported.folder.parent / "results"
    try:
        result = read_results(file for file in results.glob("*.json") if file.stem in LABELLED)[0]
    except (UserError, IndexError):
        return ""
    about, test = METRICS[result.protocol["metric"]], result.protocol["test"]
    value = result.rows[0].get(about.name)
    told = "not defined" if value is None else shown(about.name, value) + " %" * about.percent
    return f"{about.words} {told} on {test['images']:,} test images ({test['split']})"


def answer(
    classifier: TrainedClassifier, images: ImageSet, *, batch_size: int, workers: int | None, device: torch.device
) -> tuple[np.ndarray, dict[int, str]]:
    """What a classifier says of every image, on any number of processes; labels are not read.

    Returns:
        Float[n K], NaN where an image cannot be read, and why not by position; the same on every process.
    """
    net, exported = classifier.net.to(device).eval(), classifier.exported
    names = classifier.labelling.names
    log = UnreadableLog(images, silent=True)  # they get a row of their own, so nothing has to stop
    outputs = [torch.empty((0, len(names)), device=device)]
    index = [torch.empty(0, dtype=torch.int64)]
    for batch in eval_batches(images, batch_size, device, log, workers):
        with torch.inference_mode():
            outputs.append(net(eval_images(batch, exported.scale, exported.size, torch.float32)).float())
        index.append(batch.index)
    found, where = (gather_rows(torch.cat(parts).to(device)).cpu().numpy() for parts in (outputs, index))
    reasons = gather_lists([f"{i} {reason}" for i, reason in log.reasons.items()])
    table = np.full((len(images), len(names)), np.nan)
    table[where] = classifier.labelling.answers(found)
    return table, {int(i): reason for i, _, reason in (line.partition(" ") for line in reasons)}


def prediction_table(found: Predicted, order: Sequence[int] | Int[np.ndarray, " n"]) -> dict[str, list[Any]]:
    """Columns by name: file, prediction, certainty, one per class, label or number, unreadable (why); a row per image.

    Classes: the likeliest name, and the probability of each. Several labels: all names above one half, joined by
    semicolons, or (none), and the probability of each. Numbers: each in a column "predicted NAME", in the units of the
    training labels; they have no certainty.

    Args:
        found: What the classifier says.
        order: Positions of the rows.
    """
    labelling, reasons, rows = found.labelling, found.reasons, [int(i) for i in order]
    columns: dict[str, list[Any]] = {"file": [found.file(i) for i in rows]}
    if (certainty := found.certainty) is not None:
        columns["prediction"] = [None if i in reasons else _named(labelling, found.answers[i]) for i in rows]
        columns["certainty"] = [None if i in reasons else float(certainty[i]) for i in rows]
    for name, values in zip(labelling.names, found.answers.T.tolist(), strict=True):
        # A class may be called like one of the other columns.
        column = f"{name} (probability)" if name in _OWN else name
        column = f"predicted {name}" if labelling.kind == "regression" else column
        columns[column] = [None if i in reasons else values[i] for i in rows]
    columns["unreadable"] = [reasons.get(i) for i in rows]
    return columns


def _named(labelling: Labelling, row: np.ndarray) -> str:
    if labelling.kind == "class":
        return labelling.names[int(row.argmax())]
    return ";".join(name for name, p in zip(labelling.names, row, strict=True) if p > 0.5) or "(none)"


def write_table(columns: dict[str, list[Any]], path: Path) -> None:
    """Writes a ``prediction_table`` to a .csv or .parquet file, whole or not at all."""
    if path.suffix.lower() == ".csv":
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))
        content = text.getvalue().encode()
    else:
        import pyarrow
        import pyarrow.parquet

        fields = [(name, pyarrow.string() if name in _WORDS else pyarrow.float64()) for name in columns]
        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(pyarrow.table(columns, schema=pyarrow.schema(fields)), sink)
        content = sink.getvalue().to_pybytes()
    write_bytes_atomically(path, content)


def doubtful(found: Predicted, count: int, names: int = 3) -> list[tuple[str, bytes, list[tuple[str, float]]]]:
    """The least certain images: their files inside the folder, pictures, and what the doubt is about.

    Args:
        found: What the classifier says of classes or labels.
        count: How many images at most.
        names: How many of the likeliest classes, or of the least certain labels.
    """
    made = list[tuple[str, bytes, list[tuple[str, float]]]]()
    for i in [int(i) for i in found.order() if int(i) not in found.reasons][:count]:
        row, file = found.answers[i], found.file(i).removeprefix(f"{found.images.name}/")
        ranked = np.argsort(-row if found.labelling.kind == "class" else np.abs(row - 0.5), kind="stable")[:names]
        made.append((file, _thumbnail(found.images, i), [(found.labelling.names[k], float(row[k])) for k in ranked]))
    return made


def _thumbnail(images: ImageSet, i: int) -> bytes:
    """A picture of an image, whole and in its own shape."""
    image = visible(decode(images.raw(i), images.form, None, images.most)[0]).convert("RGB")
    if (times := _THUMBNAIL // 2 // max(image.size)) > 1:
        image = image.resize((image.width * times, image.height * times), Image.Resampling.NEAREST)
    image.thumbnail((_THUMBNAIL, _THUMBNAIL), Image.Resampling.BICUBIC)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()
