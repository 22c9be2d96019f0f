"""A verdict's folder, read: every number with what it stands on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Float, Int

from ssl_vit.errors import UserError
from ssl_vit.results import Result, read_results


@dataclass(frozen=True)
class Score:
    """One number: a method with one draw of labels."""

    start: str
    """What weights began with: mae, dino, public, scratch, cnn, pixels, random."""
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
    confidence: Float[np.ndarray, " I"] | None
    result: Result
    command: str
    cost: dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """All numbers of a verdict, and what verdict.json says of them."""

    folder: Path
    about: dict[str, Any]
    scores: tuple[Score, ...]

    def of(self, start: str, use: str, labels: int | None = None, *, matched: bool = False) -> list[Score]:
        """The scores of one method, at one number of labels or all, by draw."""
        found = [s for s in self.scores if (s.start, s.use, s.matched) == (start, use, matched)]
        return sorted((s for s in found if labels in (None, s.labels)), key=lambda s: (s.labels, s.draw))

    @property
    def clusters(self) -> Int[np.ndarray, " U"] | None:
        """The group of every test image, where groups were named."""
        given = self.about["test"].get("clusters")
        return None if given is None else np.asarray(given, dtype=np.int64)


def read_verdict(folder: str | Path) -> Verdict:
    """Reads a verdict's folder.

    Args:
        folder: What eval/verdict.py wrote.

    Raises:
        UserError: Where it is none, or damaged.
    """
    place = Path(folder).expanduser()
    path = place / "verdict.json"
    if not path.exists():
        raise UserError(f"{folder} holds no verdict.json; give the folder that eval/verdict.py wrote")
    try:
        about = cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise UserError(f"{path} cannot be read as JSON ({error}); run eval/verdict.py again, it continues") from error
    scores = [_score(result, about["metric"]) for result in read_results([place])]
    return Verdict(place, about, tuple(scores))


def _score(result: Result, metric: str) -> Score:
    told = cast("dict[str, Any]", json.loads(result.path.read_text(encoding="utf-8"))["verdict"])
    arrays: dict[str, np.ndarray] = {}
    beside = result.path.with_suffix(".npz")
    if beside.exists():
        with np.load(beside) as file:
            arrays = {name: file[name] for name in file.files}
    row = result.rows[0]
    return Score(
        start=told["start"], use=told["use"], labels=result.labels_used, draw=told["draw"],
        pretraining=told["pretraining"], matched=told["matched"], value=float(row[metric]),
        units=arrays.get("units"), predicted=arrays.get("predicted"), confidence=arrays.get("confidence"),
        result=result, command=told["command"], cost=told["cost"],
    )  # fmt: skip
