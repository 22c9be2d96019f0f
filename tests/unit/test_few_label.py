"""Draws and held-out parts of labels of every kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ssl_vit.configs import DataConfig, LabelledDataConfig
from ssl_vit.data.sources.opening import open_labelled
from ssl_vit.data.sources.splits import draw_labels
from ssl_vit.data.targets import Kind, strata
from ssl_vit.evaluation.few_label import held_out_inside, too_few


def labels_of(kind: Kind, n: int = 200) -> np.ndarray:
    rng = np.random.default_rng(0)
    if kind == "class":
        return rng.integers(0, 4, n)
    if kind == "multilabel":
        return (rng.random((n, 3)) < [0.6, 0.3, 0.05]).astype(np.float64)
    return rng.exponential(size=(n, 2))


@pytest.mark.parametrize("kind", ["class", "multilabel", "regression"])
def test_draws_take_from_every_stratum_and_are_nested(kind: Kind) -> None:
    labels = labels_of(kind)
    groups = strata(labels, kind)
    few, more = draw_labels(labels, 20, 3, kind), draw_labels(labels, 40, 3, kind)
    assert set(few) < set(more)
    taken = np.array([(groups[few] == g).sum() for g in np.unique(groups)])
    assert taken.max() - taken.min() <= 1
    assert not np.array_equal(few, draw_labels(labels, 20, 4, kind))


@pytest.mark.parametrize("kind", ["class", "multilabel", "regression"])
def test_a_fifth_is_held_out_of_all_kinds(kind: Kind) -> None:
    labels = labels_of(kind)
    split = held_out_inside(labels, 0, kind)
    assert split is not None
    kept, held = split
    assert np.array_equal(np.sort(np.concatenate([kept, held])), np.arange(200))
    assert 32 <= len(held) <= 40
    groups = strata(labels, kind)
    for group in np.unique(groups):
        if (groups == group).sum() >= 5:
            assert (groups[held] == group).any()


def test_few_labels_of_classes_without_five_stay_in_training_many_allow_no_choice() -> None:
    rare = np.repeat([0, 1], (50, 4))
    split = held_out_inside(rare, 0)
    assert split is not None
    assert (rare[split[0]] == 1).sum() == 4
    assert len(split[1]) == 10
    assert held_out_inside(np.repeat([0, 1, 2], (50, 4, 4)), 0) is None
    assert held_out_inside(np.repeat([0, 1], (30, 4)), 0) is None


def test_too_few_labels_are_told_by_their_kind() -> None:
    digits = open_labelled(DataConfig(), LabelledDataConfig()).train.subset(np.arange(4))
    assert too_few(digits) == "4 labels are too few, every class needs 5 to leave a fifth out"
    numbers = replace(digits, labels=np.ones((4, 1)), kind="regression")
    assert too_few(numbers) == "4 labels are too few, that takes 5 to leave a fifth out"
    grouped = replace(digits, groups=np.array([3, 3, 4, 4]))
    assert too_few(grouped) == "4 labels of 2 groups are too few to leave groups out"


def test_a_rare_label_allows_a_choice() -> None:
    several = np.zeros((54, 2))
    several[:50, 0] = several[50:, 1] = 1.0
    split = held_out_inside(several, 0, "multilabel")
    assert split is not None
    assert len(split[1]) == 10


def test_small_strata_are_held_out_from_together() -> None:
    numbers = np.arange(20.0)[:, None]  # two images per tenth of the range
    split = held_out_inside(numbers, 0, "regression")
    assert split is not None
    assert len(split[1]) == 4
    assert held_out_inside(numbers[:9], 0, "regression") is None  # one image would choose
