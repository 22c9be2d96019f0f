"""A classifier's answers for images without labels, as a table."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ssl_vit.core.dist import gather_lists, gather_rows
from ssl_vit.core.files import write_bytes_atomically
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.loader import UnreadableLog, eval_batches
from ssl_vit.exports.classifier import Labelling, TrainedClassifier
from ssl_vit.views.evaluation import eval_images

SUFFIXES = (".csv", ".parquet")
_OWN = ("file", "prediction", "unreadable")


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
    index = [torch.empty(0, dtype=torch.int64, device=device)]
    for batch in eval_batches(images, batch_size, device, log, workers):
        with torch.inference_mode():
            outputs.append(net(eval_images(batch, exported.scale, exported.size, torch.float32)).float())
        index.append(batch.index)
    found, where = (gather_rows(torch.cat(parts)).cpu().numpy() for parts in (outputs, index))
    reasons = gather_lists([f"{i} {reason}" for i, reason in log.reasons.items()])
    table = np.full((len(images), len(names)), np.nan)
    table[where] = classifier.labelling.answers(found)
    return table, {int(i): reason for i, _, reason in (line.partition(" ") for line in reasons)}


def prediction_table(
    images: ImageSet, labelling: Labelling, answers: np.ndarray, reasons: dict[int, str]
) -> dict[str, list[Any]]:
    """Columns by name: file, prediction, one per class, label or number, unreadable (why); a row per image, in order.

    Classes: the likeliest name, and the probability of each. Several labels: all names above one half, joined by
    semicolons, or (none), and the probability of each. Numbers: each in a column "predicted NAME", in the units of the
    training labels. Answers and reasons are as ``answer`` returns them.
    """
    columns: dict[str, list[Any]] = {"file": [images.where(i) for i in range(len(images))]}
    if labelling.kind != "regression":
        columns["prediction"] = [None if i in reasons else _named(labelling, row) for i, row in enumerate(answers)]
    for name, values in zip(labelling.names, answers.T.tolist(), strict=True):
        # A class may be called like one of the other columns.
        column = f"{name} (probability)" if name in _OWN else name
        column = f"predicted {name}" if labelling.kind == "regression" else column
        columns[column] = [None if i in reasons else value for i, value in enumerate(values)]
    columns["unreadable"] = [reasons.get(i) for i in range(len(images))]
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

        fields = [(name, pyarrow.string() if name in _OWN else pyarrow.float64()) for name in columns]
        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(pyarrow.table(columns, schema=pyarrow.schema(fields)), sink)
        content = sink.getvalue().to_pybytes()
    write_bytes_atomically(path, content)
