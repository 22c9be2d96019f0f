"""Two named checkpoints, and nothing else, are compared answer by answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest
from ssl_vit.core.errors import UserError
from ssl_vit.report.findings.checkpoints import between_two
from ssl_vit.runs.identity import digest
from ssl_vit.runs.results import read_results

RIGHT = np.arange(40) < 30
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, right: np.ndarray = RIGHT, *, answers: bool = True, **protocol: Any) -> Path:
        rules = {"kind": "class", "metric": "top1", "test": {"fingerprint": "t3st"}} | protocol
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({
            "method": "knn", "rows": [], "protocol": rules, "protocol_hash": digest(rules), "labels_used": 9,
            "draw": None, "seed": 0, "data": {},
        }))  # fmt: skip
        if answers:
            np.savez(path.with_suffix(".npz"), units=100.0 * right, positions=np.arange(len(right)))
        return path

    return written


def test_the_sentence_says_what_it_is_about(write: Write) -> None:
    other = np.roll(RIGHT, 4)  # right on 4 other images, wrong on 4
    other[30] = False
    one, two = write("a"), write("b", other)
    said = between_two(read_results([one, two]))
    p = binomtest(3, 7).pvalue
    assert f"on 40 test images: {one.resolve()} alone is right on 4, {two.resolve()} alone on 3; p = {p:.2f}" in said
    assert said.endswith("These two checkpoints only; another seed makes another checkpoint.")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": {"fingerprint": "0ther"}}, "other test images"),
        ({"metric": "auroc"}, "--eval.metric top1"),
        ({"metric": "balanced"}, "--eval.metric top1"),  # there a wrong answer may count for something, too
        ({"kind": "regression", "metric": "r2"}, "it needs one class per image"),
        ({"answers": False}, "has no answers beside it"),
        ({"right": RIGHT[:-1]}, "could not read the same test images"),
    ],
)
def test_what_cannot_be_compared_is_refused(options: dict[str, Any], message: str, write: Write) -> None:
    with pytest.raises(UserError, match=message):
        between_two(read_results([write("a"), write("b", **options)]))


def test_between_two_only(write: Write) -> None:
    with pytest.raises(UserError, match="3 are given; name two"):
        between_two(read_results([write("a"), write("b"), write("c")]))
