"""Parquet files in the Hugging Face image convention: a column of {bytes, path}, labels as ClassLabel, int or text."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow
from datasets.exceptions import DatasetGenerationError

from ssl_vit.errors import UserError, did_you_mean

_LABELS = ("label", "labels", "class", "target", "fine_label")


@dataclass(frozen=True)
class ParquetRows:
    """Encoded images in a memory-mapped table."""

    dataset: datasets.Dataset
    column: str
    name: str

    def __len__(self) -> int:
        """Number of images."""
        return len(self.dataset)

    def raw(self, row: int) -> bytes:
        """The image's bytes; a row that only names a file reads that file."""
        cell = self.dataset[row][self.column]
        if isinstance(cell, bytes):
            return cell
        if cell is None:
            return b""
        if cell.get("bytes") is not None:
            return cell["bytes"]
        return Path(cell["path"]).read_bytes() if cell.get("path") else b""

    def where(self, row: int) -> str:
        """File and row."""
        return f"{self.name} row {row}"


def open_parquet(
    splits: dict[str, list[Path]], image_column: str | None, label_column: str | None, *, labelled: bool = True
) -> dict[str, tuple[ParquetRows, np.ndarray | None, tuple[str, ...], str]]:
    """Opens the files of every split.

    Args:
        splits: Files by split name.
        image_column: ``--data.image_column``.
        label_column: ``--data.label_column``.
        labelled: Read labels; a pool to pre-train on needs none.

    Returns:
        Rows, labels (None without a label column), class names and fingerprint by split.

    Raises:
        UserError: For unreadable files, missing or ambiguous columns.
    """
    loaded = {name: _load(files) for name, files in splits.items()}
    first = next(iter(loaded.values()))
    folder = str(next(iter(splits.values()))[0].parent)
    image = _image_column(first, image_column, folder)
    label = _label_column(first, label_column, folder, image) if labelled else None
    texts = {}
    if label is not None:
        for name, data in loaded.items():
            if label not in data.column_names:
                raise UserError(f"split {name} in {folder} has no column {label}; its columns: {_columns(data)}")
            if data.features[label] != first.features[label]:
                raise UserError(f"the splits in {folder} disagree on the classes of column {label}")
            texts[name] = _label_values(data, label, folder)
    classes = sorted({v for values in texts.values() for v in values}, key=_natural)
    feature = first.features[label] if label else None
    names = tuple(feature.names) if isinstance(feature, datasets.ClassLabel) else tuple(str(c) for c in classes)
    number = (
        {i: i for i in range(len(names))}
        if isinstance(feature, datasets.ClassLabel)
        else {value: i for i, value in enumerate(classes)}
    )
    opened = {}
    for name, data in loaded.items():
        digest = hashlib.sha256()
        for file in splits[name]:
            digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        labels = np.array([number[v] for v in texts[name]], dtype=np.int64) if label else None
        pictures = data.select_columns([image])
        title = splits[name][0].name if len(splits[name]) == 1 else f"{folder} ({name})"
        opened[name] = (ParquetRows(pictures, image, title), labels, names, digest.hexdigest())
    return opened


def _load(files: list[Path]) -> datasets.Dataset:
    datasets.disable_progress_bars()
    parts = []
    for file in files:
        try:
            data = datasets.Dataset.from_parquet(str(file))
        except (pyarrow.ArrowInvalid, OSError, ValueError, DatasetGenerationError) as error:
            raise UserError(f"{file} cannot be read as parquet: {str(error).partition(chr(10))[0]}") from error
        assert isinstance(data, datasets.Dataset)
        if not len(data):
            raise UserError(f"{file} has no rows")
        for column, feature in data.features.items():
            if isinstance(feature, datasets.Image):
                data = data.cast_column(column, datasets.Image(decode=False))
        parts.append(data)
    try:
        return datasets.concatenate_datasets(parts) if len(parts) > 1 else parts[0]
    except ValueError as error:
        raise UserError(f"the parquet files of {files[0].parent} do not fit together: {error}") from error


def _columns(data: datasets.Dataset) -> str:
    return ", ".join(data.column_names)


def _holds_images(feature: Any) -> bool:
    if isinstance(feature, datasets.Image):
        return True
    if isinstance(feature, dict):
        return "bytes" in feature
    return isinstance(feature, datasets.Value) and feature.dtype in ("binary", "large_binary")


def _image_column(data: datasets.Dataset, wanted: str | None, folder: str) -> str:
    candidates = [c for c, f in data.features.items() if _holds_images(f)]
    if wanted is not None:
        if wanted not in data.column_names:
            raise UserError(
                f"{folder} has no column {wanted}{did_you_mean(wanted, data.column_names)}; columns: {_columns(data)}"
            )
        if wanted not in candidates:
            raise UserError(f"column {wanted} in {folder} holds no images but {data.features[wanted]}")
        return wanted
    if "image" in candidates:
        return "image"
    if len(candidates) != 1:
        state = "several columns with images" if candidates else "no column with images"
        raise UserError(
            f"{folder} has {state}; columns: {_columns(data)}. Name one with --data.image_column "
            "(--eval.data.image_column)"
        )
    return candidates[0]


def _label_column(data: datasets.Dataset, wanted: str | None, folder: str, image: str) -> str | None:
    if wanted is not None:
        if wanted not in data.column_names:
            raise UserError(
                f"{folder} has no column {wanted}{did_you_mean(wanted, data.column_names)}; columns: {_columns(data)}"
            )
        return wanted
    for name in _LABELS:
        if name in data.column_names and name != image:
            return name
    classes = [c for c, f in data.features.items() if isinstance(f, datasets.ClassLabel)]
    return classes[0] if len(classes) == 1 else None


def _label_values(data: datasets.Dataset, column: str, folder: str) -> list[Any]:
    if not isinstance(data.features[column], (datasets.ClassLabel, datasets.Value)):
        raise UserError(f"column {column} in {folder} holds {data.features[column]}, not one class per image")
    values = data.data.column(column).to_pylist()
    for row, value in enumerate(values):
        if value is None or (isinstance(value, float) and value != value):
            raise UserError(f"row {row} of column {column} in {folder} has no label; remove it or label it")
        if isinstance(value, float):
            raise UserError(f"column {column} in {folder} holds fractions ({value:g}), not classes")
        if isinstance(value, int) and value < 0:
            raise UserError(f"row {row} of column {column} in {folder} has the label {value}; classes start at 0")
    return values


def _natural(value: Any) -> tuple[bool, Any]:
    return (isinstance(value, str), value)
