"""A verdict's folder, read: every number with what it stands on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float, Int

from ssl_vit.core.errors import UserError, reason
from ssl_vit.core.reading import loads
from ssl_vit.methods.starts import starts as all_starts
from ssl_vit.runs.arrays import read_arrays
from ssl_vit.runs.results import Result, read_results

FORMAT = 2
"""Of verdict.json."""
PER_CLASS = ("per_class", "per_label", "per_target")
"""What rows of results call the part that tells of single classes, labels or numbers."""


class Place(NamedTuple):
    """What a number is of."""

    start: str
    use: str
    labels: int
    draw: int
    matched: bool

    @property
    def line(self) -> str:
        """The method, as ``numbers`` of verdict.json calls it."""
        return f"{self.start}-{self.use}{'-matched' * self.matched}"

    def words(self) -> str:
        """As far as it tells numbers apart."""
        longer = " at the FLOPs of pre-training" if self.matched else ""
        return f"{self.start} ({self.use}){longer} with {self.labels:,} labels, draw {self.draw}"


@dataclass(frozen=True)
class Score:
    """One number: a method with one draw of labels."""

    start: str
    """What weights began with: a method of pre-training, public, scratch, cnn, pixels, random."""
    use: str
    """How labels were used: knn, linear, train."""
    labels: int
    draw: int
    pretraining: int | None
    """Number of the pre-training seed; None where nothing was pre-trained."""
    matched: bool
    """Whether this is the baseline at the FLOPs of pre-training and fine-tuning together."""
    value: float
    """The leading metric."""
    units: Float[np.ndarray, " U"] | None
    """Contributions of test images (their mean is the value); None where only the value is known."""
    predicted: Int[np.ndarray, " I"] | None
    result: Result
    command: str
    cost: dict[str, Any]
    row: dict[str, Any]
    """All metrics."""
    answers: Mapping[str, np.ndarray] = field(default_factory=dict)
    """All that is kept of the answers: positions of test images, groups, confidences."""
    seen: int | None = None
    """Test images that pre-training saw; None where that is not known."""

    @property
    def place(self) -> Place:
        """What the number is of."""
        return Place(self.start, self.use, self.labels, self.draw, self.matched)


@dataclass(frozen=True)
class Verdict:
    """All numbers of a verdict, and what verdict.json says of them."""

    folder: Path
    about: dict[str, Any]
    scores: tuple[Score, ...]
    leaks: dict[str, Any] | None = None
    """What the leak guard found (leaks.json); None where it did not look."""

    def of(self, start: str, use: str, labels: int | None = None, *, matched: bool = False) -> list[Score]:
        """The scores of one method, at one number of labels or all, by draw."""
        found = [s for s in self.scores if (s.start, s.use, s.matched) == (start, use, matched)]
        return sorted((s for s in found if labels in (None, s.labels)), key=lambda s: (s.labels, s.draw))

    def by_labels(self, start: str, use: str, *, matched: bool = False) -> dict[int, list[Score]]:
        """The scores of one method at every number of labels that it has, by draw."""
        found: dict[int, list[Score]] = {}
        for score in self.of(start, use, matched=matched):
            found.setdefault(score.labels, []).append(score)
        return found

    def trained(self, start: str) -> list[Score]:
        """All scores of which all weights were trained."""
        return [*self.of(start, "train"), *self.of(start, "train", matched=True)]

    @property
    def clusters(self) -> Int[np.ndarray, " U"] | None:
        """The group of every test image, where groups were named."""
        given = self.told("test").get("clusters")
        return None if given is None else np.asarray(given, dtype=np.int64)

    @property
    def methods(self) -> dict[str, dict[str, Any]]:
        """What is told of every start."""
        return self.told("methods")

    @property
    def starts(self) -> list[str]:
        """Those that have numbers, in the order of a report."""
        found, known = dict.fromkeys(score.start for score in self.scores), all_starts()
        return [*(s for s in found if s not in known), *(s for s in known if s in found)]

    @property
    def studies(self) -> list[dict[str, Any]]:
        """The tuning of every method."""
        return self.told("tuning").get("studies", [])

    @property
    def leaking(self) -> list[dict[str, Any]]:
        """What the leak guard found of test images where they should not be."""
        return [one for one in (self.leaks or {}).get("findings", []) if one.get("leak")]

    @property
    def from_runs(self) -> bool:
        """Whether these are ordinary runs, of which less is known."""
        return "from_runs" in self.about

    def runs(self, start: str) -> list[dict[str, Any]]:
        """The pre-trainings of a start."""
        return self.methods.get(start, {}).get("pretraining", [])

    def name(self, start: str) -> str:
        """Of a start, for people."""
        return str(self.methods.get(start, {}).get("name", start))

    def told(self, part: str) -> dict[str, Any]:
        """A part of verdict.json; empty where it says nothing of it, as of ordinary runs."""
        return self.about.get(part) or {}


def read_verdict(folder: str | Path) -> Verdict:
    """Reads the folder that a verdict wrote.

    Raises:
        UserError: Where it is none, or damaged.
    """
    place = Path(folder).expanduser()
    path = place / "verdict.json"
    if not path.exists():
        raise UserError(f"{folder} holds no verdict.json; give the folder that eval/verdict.py wrote")
    about = _json(path)
    lacks = ", ".join(n for n in ("metric", "kind", "labels", "methods", "data", "test") if n not in about)
    same = about.get("format") == FORMAT
    if lacks or not same:
        what = f"lacks {lacks}" if same else f"has format {about.get('format')}, not format {FORMAT}"
        raise UserError(f"{path} {what}: another version wrote it, or it is damaged; run eval/verdict.py again")
    scores = read_scores(place, about["metric"])
    found = place / "leaks.json"
    return Verdict(place, about, scores, _json(found) if found.exists() else None)


def read_scores(folder: Path, metric: str) -> tuple[Score, ...]:
    """Every number in a verdict's folder, also while more are made."""
    return tuple(_score(result, metric) for result in read_results([folder]))


def _json(path: Path) -> dict[str, Any]:
    try:
        content = loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read as JSON ({reason(error)}); run eval/verdict.py again, it continues"
        ) from error
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no JSON object; run eval/verdict.py again, it continues")
    return cast("dict[str, Any]", content)


_TOLD = {"start", "use", "draw", "pretraining", "matched", "command", "cost"}


def _score(result: Result, metric: str) -> Score:
    content = _json(result.path)
    told, row = content.get("verdict") or {}, result.rows[0] if result.rows else {}
    if not _TOLD.issubset(told) or not isinstance(row.get(metric), int | float):
        raise UserError(f"{result.path} is no result of a verdict; remove it, and run eval/verdict.py again")
    arrays = answers_beside(result.path)
    return Score(
        start=told["start"], use=told["use"], labels=result.labels_used, draw=told["draw"],
        pretraining=told["pretraining"], matched=told["matched"], value=float(row[metric]),
        units=arrays.get("units"), predicted=arrays.get("predicted"), result=result, command=told["command"],
        cost=told["cost"], row=row, answers=arrays, seen=content.get("test_images_seen_in_pre_training"),
    )  # fmt: skip


def answers_beside(result: Path) -> dict[str, np.ndarray]:
    """What was answered for every test image, beside a result's file; empty where that was not kept.

    Raises:
        UserError: Where the file is damaged.
    """
    beside = result.with_suffix(".npz")
    if not beside.exists():
        return {}
    return read_arrays(beside, f"remove it and {result.name}, and make that result again")
