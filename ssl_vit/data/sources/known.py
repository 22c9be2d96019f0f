"""What is known of images that are looked at, not judged: labels of all, of some splits only, or of none."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ssl_vit.configs import DataConfig, SourceConfig
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.data.images import ImageSet
from ssl_vit.data.sources.locate import open_source
from ssl_vit.data.sources.opening import open_images, shown_splits
from ssl_vit.data.sources.part import Part, given, scattered
from ssl_vit.data.targets import Kind


class KnownLabels(NamedTuple):
    """Labels of images, some of which may have none."""

    kind: Kind
    names: tuple[str, ...]
    """Of the classes, of the K labels, or of the K numbers."""
    values: np.ndarray
    """Int[n], -1 where an image has none; or Float[n K], NaN there."""

    @property
    def given(self) -> np.ndarray:
        """Bool[n]: which images have a label."""
        return given(self.values)

    def subset(self, positions: np.ndarray) -> KnownLabels:
        """Of the images at these positions."""
        return self._replace(values=self.values[positions])

    def columns(self) -> dict[str, list[Any]]:
        """Columns of a table by name, None where an image has no label.

        ``label`` holds the name of a class, the names of all labels of an image with semicolons between them, or the
        only number; several numbers have a column each.
        """
        given = self.given.tolist()
        if self.kind == "class":
            return {"label": [self.names[v] if ok else None for v, ok in zip(self.values, given, strict=True)]}
        if self.kind == "multilabel":
            told = [";".join(n for n, v in zip(self.names, row, strict=True) if v > 0) for row in self.values]
            return {"label": [text if ok else None for text, ok in zip(told, given, strict=True)]}
        names = ["label"] if len(self.names) == 1 else [f"label {name}" for name in self.names]
        columns = self.values.T.tolist()
        return {
            name: [v if ok else None for v, ok in zip(column, given, strict=True)]
            for name, column in zip(names, columns, strict=True)
        }


def open_known(data: DataConfig) -> tuple[ImageSet, KnownLabels | None]:
    """Every image of a source, as ``open_images``, and the labels of those that have one.

    Labels that cannot be read are left out with a note, unless the command line said which they are.

    Args:
        data: Where they are.

    Raises:
        UserError: For images that cannot be opened, and for labels that were asked for and cannot be read.
    """
    images = open_images(data)
    try:
        parts = open_every(data)
        chosen = [parts[split] for split in shown_splits(parts, data)]
    except UserError as error:
        if any(option is not None for option in (data.labels, data.label_column, data.target)):
            raise
        say_once(f"note: no labels are read: {error}")
        return images, None
    same = sum(len(part.rows) for part in chosen) == len(images)
    return images, known_of(chosen) if same else None


def open_every(data: SourceConfig) -> dict[str, Part]:
    """The splits of a source, with the labels of all that have some where these go together.

    Else with the labels of those that would be trained and judged on, for which the others do not matter.

    Raises:
        UserError: As ``open_source``.
    """
    parts = open_source(data, labelled=True)
    labelled = [part.labels is not None for part in parts.values()]
    if data.split is None and any(labelled) and not all(labelled):
        with suppress(UserError):
            return open_source(replace(data, split="+".join(parts)), labelled=True)
    return parts


def known_of(parts: Sequence[Part]) -> KnownLabels | None:
    """The labels of some splits, one after another; None where none has any."""
    first = next((part for part in parts if part.labels is not None), None)
    if first is None:
        return None
    none = np.asarray(first.labels)[:0], np.empty(0, dtype=np.int64)
    values = [scattered(*none, len(p.rows), first.kind) if p.labels is None else p.labels for p in parts]
    return KnownLabels(first.kind, first.classes, np.concatenate(values))
