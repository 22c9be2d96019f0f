"""One split of a source: what every kind of source is turned into."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ssl_vit.configs import SourceConfig
from ssl_vit.data.images import Rows
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


@dataclass(frozen=True)
class Part:
    """The images of one split, with labels only where they were asked for."""

    rows: Rows
    fingerprint: str
    """Hash of the names and sizes (or pixels) of all rows."""
    labels: np.ndarray | None = None
    classes: tuple[str, ...] = ()
    kind: Kind = "class"
    groups: np.ndarray | None = None
    """Int[n]: what must stay together in a made split."""
    group_names: tuple[str, ...] = ()
    """Of the groups' numbers, in the whole source."""
    blocks: np.ndarray | None = None
    """Int[n]: which stretch of a file each row lies in, where rows are best read in such stretches."""
    joined: tuple[Part, ...] = ()
    """The splits this one was joined from."""

    @property
    def pieces(self) -> tuple[tuple[str, int], ...]:
        """Hash and length of every split in here."""
        return tuple((p.fingerprint, len(p.rows)) for p in self.joined or (self,))


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

    def raw(self, row: int) -> bytes | np.ndarray | tuple[bytes, ...]:
        """What the split that the row belongs to has."""
        part, own = self._find(row)
        return part.raw(own)

    def where(self, row: int) -> str:
        """What the split that the row belongs to says."""
        part, own = self._find(row)
        return part.where(own)


def join(parts: Sequence[Part]) -> Part:
    """Several splits as one, in order; groups and blocks of different splits stay different."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    labels = None
    if all(p.labels is not None for p in parts):
        labels = np.concatenate([p.labels for p in parts if p.labels is not None])
    digest = hashlib.sha256("".join(p.fingerprint for p in parts).encode()).hexdigest()
    rows = JoinedRows(tuple(p.rows for p in parts))
    blocks = _apart([p.blocks for p in parts])
    groups = None
    if all(p.groups is not None for p in parts):  # numbered over the whole source, so the same everywhere
        groups = np.concatenate([p.groups for p in parts if p.groups is not None])
    return Part(rows, digest, labels, first.classes, first.kind, groups, first.group_names, blocks, tuple(parts))


def _apart(numbers: list[np.ndarray | None]) -> np.ndarray | None:
    found = [n for n in numbers if n is not None]
    if len(found) < len(numbers):
        return None
    shift = np.cumsum([0, *(int(n.max(initial=-1)) + 1 for n in found[:-1])])
    return np.concatenate([n + s for n, s in zip(found, shift, strict=True)])


class Groups(NamedTuple):
    """Groups of a source."""

    numbers: dict[str, np.ndarray]
    """Int[n] by split."""
    names: tuple[str, ...]
    """By number."""

    def of(self, split: str) -> dict[str, Any]:
        """What a ``Part`` says of one split."""
        return {"groups": self.numbers[split], "group_names": self.names} if split in self.numbers else {}


def numbered(values: dict[str, list[object]]) -> Groups:
    """Group names of every split as numbers, the same name getting the same number everywhere."""
    names = tuple(sorted({str(v) for part in values.values() for v in part}))
    number = {name: i for i, name in enumerate(names)}
    found = {split: np.array([number[str(v)] for v in part], dtype=np.int64) for split, part in values.items()}
    return Groups(found, names)
