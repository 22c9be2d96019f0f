"""Test splits and draws of labels: by class, by hash, nested, and the same for everyone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ssl_vit.core.errors import UserError
from ssl_vit.data.sources.splits import TEST_SHARE, draw_labels, made_split

LABELS = st.lists(st.integers(0, 6), min_size=1, max_size=120).map(lambda v: np.array(v, dtype=np.int64))


@given(labels=LABELS)
def test_a_made_split_is_complete_disjoint_and_stratified(labels: np.ndarray) -> None:
    train, test = made_split(labels)
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(labels)))
    assert np.array_equal(train, np.sort(train))
    assert np.array_equal(test, np.sort(test))
    for label in np.unique(labels):
        images, held = (labels == label).sum(), (labels[test] == label).sum()
        assert (labels[train] == label).any()
        if images == 1:
            assert held == 0
        else:
            assert held >= 1
            assert abs(held - TEST_SHARE * images) <= max(0.5, 1 - TEST_SHARE * images)
    again = made_split(labels.copy())
    assert np.array_equal(train, again[0])
    assert np.array_equal(test, again[1])


@given(labels=LABELS, chosen=st.permutations(range(7)))
def test_a_class_is_split_alike_whatever_the_other_classes_are(labels: np.ndarray, chosen: list[int]) -> None:
    _, test = made_split(labels)
    other = labels.copy()
    moved = labels != labels[0]
    other[moved] = np.array([100 + c for c in chosen])[labels[moved]]
    own = np.flatnonzero(labels == labels[0])
    assert np.array_equal(np.isin(own, test), np.isin(own, made_split(other)[1]))


def test_a_made_split_takes_a_fifth_from_everywhere() -> None:
    labels = np.repeat(np.arange(5), 2000)
    _, test = made_split(labels)
    assert len(test) == 2000
    for label in range(5):
        # Not the first or last files of a folder, which often are one scene.
        inside = test[labels[test] == label] - 2000 * label
        assert np.abs(np.histogram(inside, 10, (0, 2000))[0] - 40).max() <= 5 * 40**0.5
    within = [set((test[labels[test] == label] - 2000 * label).tolist()) for label in range(5)]
    assert len(within[0] & within[1]) < 150  # 80 expected: classes are hashed apart


@given(labels=LABELS, draw=st.integers(0, 50), data=st.data())
def test_drawn_labels_are_nested_and_balanced(labels: np.ndarray, draw: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(labels)))
    chosen = draw_labels(labels, count, draw)
    assert len(chosen) == count == len(set(chosen.tolist()))
    assert np.array_equal(chosen, np.sort(chosen))
    assert chosen.min() >= 0
    assert chosen.max() < len(labels)
    assert np.array_equal(chosen, draw_labels(labels, count, draw))
    if count > 1:
        assert set(draw_labels(labels, count - 1, draw)) < set(chosen)
    classes, sizes = np.unique(labels, return_counts=True)
    taken = np.array([(labels[chosen] == c).sum() for c in classes])
    # As even as the classes allow: whoever has fewer than another either is one behind or has no more to give.
    assert (taken[taken < sizes] >= taken.max() - 1).all()


def test_a_draw_of_all_labels_is_all_of_them() -> None:
    labels = np.array([0, 0, 1, 2, 2, 2])
    assert draw_labels(labels, 6, 3).tolist() == [0, 1, 2, 3, 4, 5]


def test_draws_differ() -> None:
    labels = np.repeat(np.arange(4), 50)
    chosen = [tuple(draw_labels(labels, 20, draw).tolist()) for draw in range(10)]
    assert len(set(chosen)) == 10
    # Every image has its chance: over many draws all are chosen about equally often.
    counts = np.bincount(np.concatenate([draw_labels(labels, 20, draw) for draw in range(200)]), minlength=200)
    assert counts.sum() == 4000
    assert counts.min() >= 5
    assert counts.max() <= 42  # 20 expected, deviation 4.2


def test_which_class_gets_the_odd_label_differs_by_draw() -> None:
    labels = np.repeat(np.arange(4), 50)
    first = {int(labels[draw_labels(labels, 1, draw)][0]) for draw in range(60)}
    assert first == {0, 1, 2, 3}


@pytest.mark.parametrize("count", [0, -3, 7, 1000])
def test_impossible_draws_are_refused_with_the_range(count: int) -> None:
    with pytest.raises(UserError, match=rf"--eval\.labels {count} .*1 to 6"):
        draw_labels(np.array([0, 0, 1, 2, 2, 2]), count, 0)


@pytest.mark.parametrize("count", [5, 10, 12, 16, 20, 25, 30, 40, 75, 200])
def test_of_numbers_about_a_fifth_is_held_out(count: int) -> None:
    train, test = made_split(np.random.default_rng(count).normal(size=(count, 1)), "regression")
    assert 0.15 * count <= len(test) <= 0.25 * count
    assert len(train) + len(test) == count
