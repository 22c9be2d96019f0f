"""One split of a source: what every kind of source is turned into."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ssl_vit.configs import SourceConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.formats import Raw
from ssl_vit.data.images import Known, Rows
from ssl_vit.data.targets import Kind

SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("test", "testing"), "test"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
}
"""Words that name a split, in file and folder names and in columns."""


def judged_splits(names: Collection[str], cfg: SourceConfig) -> list[str]:
    """Splits that would be trained and judged on; whether others (an unlabelled one) have labels does not matter."""

    def given(option: str | None) -> list[str]:
        words = (option or "").split("+")
        return [found for word in words for found in (word, SPLITS.get(word.lower(), word)) if found in names]

    trained = given(cfg.split) or (["train"] if "train" in names else list(names))
    held = given(cfg.test_split) or [name for name in ("test", "val") if name in names and name not in trained][:1]
    return [name for name in names if name in (*trained, *held)]


def check_names(names: Iterable[str], where: str) -> None:
    """Refuses names that no table or page could hold: those whose bytes are no UTF-8, as old archives have them.

    Args:
        names: Of images.
        where: What they lie in.

    Raises:
        UserError: Names one of them.
    """
    strange = [name for name in names if not name.isascii() and any("\ud800" <= c <= "\udfff" for c in name)]
    if strange:
        raise UserError(
            f"{where} has {len(strange):,} image(s) whose name is not UTF-8, e.g. {strange[0]!a}; give them other "
            "names (convmv changes many at once)"
        )


class Labels(NamedTuple):
    """Labels of every split in one numbering; -1, or NaN, for an image that has none."""

    values: dict[str, np.ndarray]
    names: tuple[str, ...]
    kind: Kind = "class"
    origin: str = ""
    """Where they come from, in words."""


def given(labels: np.ndarray) -> np.ndarray:
    """Bool[n]: which images have a label.

    Args:
        labels: Of a split: Int[n], -1 where an image has none; or Float[n K], NaN there.
    """
    return np.asarray(labels >= 0 if labels.ndim == 1 else ~np.isnan(labels).any(axis=1))


def scattered(values: np.ndarray, at: np.ndarray, count: int, kind: Kind) -> np.ndarray:
    """Labels of some images as labels of all, of whom the others have none.

    Args:
        values: Labels of the images at these places.
        at: Int[n]: their places.
        count: How many images there are.
        kind: How labels are to be read.
    """
    found = np.full((count, *values.shape[1:]), -1 if kind == "class" else np.nan, dtype=values.dtype)
    found[at] = values
    return found


@dataclass(frozen=True)
class Part(Known):
    """The images of one split, with labels only where they were asked for; some may have none (``given``)."""

    rows: Rows
    fingerprint: str
    """Hash of the names and sizes (or pixels) of all rows."""
    joined: tuple[Part, ...] = ()
    """The splits this one was joined from."""


@dataclass(frozen=True)
class JoinedRows:
    """The rows of several splits, one after another."""

    parts: tuple[Rows, ...]

    def _find(self, row: int) -> tuple[Rows, int]:
        for part in self.parts:
            if row < len(part):
                return part, row
            row -= len(part)
        raise IndexError(row)

    def __len__(self) -> int:
        """Number of images."""
        return sum(len(part) for part in self.parts)

    def raw(self, row: int) -> Raw:
        """What the split that the row belongs to has."""
        part, own = self._find(row)
        return part.raw(own)

    def where(self, row: int) -> str:
        """What the split that the row belongs to says."""
        part, own = self._find(row)
        return part.where(own)

    def file(self, row: int) -> str | None:
        """What the split that the row belongs to says."""
        part, own = self._find(row)
        return file_of(part, own)

    def called(self, row: int) -> str | None:
        """What the split that the row belongs to says."""
        part, own = self._find(row)
        return _called(part, own)


def file_of(rows: Rows, row: int) -> str | None:
    """The path of the file that holds an image; None where a source keeps it otherwise, or in several files.

    Args:
        rows: Of a source.
        row: Which of them.
    """
    own = getattr(rows, "file", None)
    return None if own is None else own(row)


def _called(rows: Rows, row: int) -> str | None:
    own = getattr(rows, "called", None)
    return None if own is None else own(row)


def name_of(rows: Rows, row: int) -> str:
    """The name of the file that an image is or was, where a source knows it; else what ``where`` says.

    Args:
        rows: Of a source.
        row: Which of them.
    """
    return file_of(rows, row) or _called(rows, row) or rows.where(row)


def join(parts: Sequence[Part]) -> Part:
    """Several splits as one, in order; groups are numbered over the whole source, blocks of splits stay different."""
    if len(parts) == 1:
        return parts[0]

    def together(name: str) -> np.ndarray | None:
        each = [getattr(part, name) for part in parts]
        if any(values is None for values in each):
            return None
        last = 0
        for i, values in enumerate(each if name == "blocks" else ()):
            each[i], last = values + last, last + int(values.max(initial=-1)) + 1
        return np.concatenate(each)

    arrays = {name: together(name) for name in ("labels", "groups", "blocks")}
    digest = hashlib.sha256("".join(p.fingerprint for p in parts).encode()).hexdigest()
    rows = JoinedRows(tuple(p.rows for p in parts))
    return replace(parts[0], rows=rows, fingerprint=digest, **arrays, joined=tuple(parts))


def described(parts: dict[str, Part], labels: Labels | None, groups: Mapping[str, Sequence[object]]) -> dict[str, Part]:
    """Splits with their labels, and their groups as numbers: the same name gets the same number everywhere."""
    names = tuple(sorted({str(v) for values in groups.values() for v in values}))
    number = {name: i for i, name in enumerate(names)}
    for split, part in parts.items():
        if labels is not None and split in labels.values:
            values = labels.values[split]
            part = replace(part, labels=values, classes=labels.names, kind=labels.kind, origin=labels.origin)
        if split in groups:
            found = np.array([number[str(v)] for v in groups[split]], dtype=np.int64)
            part = replace(part, groups=found, group_names=names)
        parts[split] = part
    return parts
