"""Choices inside given labels never see one group on both sides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ssl_vit.configs import LinearConfig
from ssl_vit.evaluation.few_label import assign_folds, group_folds, held_out_inside
from ssl_vit.evaluation.linear import linear_probe
from ssl_vit.evaluation.linear_cached import linear_cached


@given(data=st.data(), groups=st.lists(st.integers(0, 12), min_size=2, max_size=90))
def test_groups_stay_whole_and_classes_stay_in_training(data: st.DataObject, groups: list[int]) -> None:
    labels = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(groups), max_size=len(groups))))
    group = np.array(groups)
    found = group_folds(labels, "class", group, 5, 0)
    if found is None:
        return
    assert sorted(np.unique(found)) == list(range(5))
    for g in np.unique(group):
        assert len(np.unique(found[group == g])) == 1
    for fold in range(5):
        assert set(labels[found != fold]) == set(labels)
    split = held_out_inside(labels, 0, groups=group)
    assert split is not None
    assert not set(group[split[0]]) & set(group[split[1]])


def test_too_few_groups_or_a_class_of_one_group_allow_no_choice() -> None:
    labels = np.arange(40) % 2
    assert group_folds(labels, "class", np.arange(40) % 4, 5, 0) is None
    assert group_folds(labels, "class", np.where(labels == 1, 99, np.arange(40)), 5, 0) is None
    assert held_out_inside(labels, 0, groups=np.zeros(40, dtype=np.int64)) is None


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_other_kinds_have_groups_too(kind) -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random((100, 3)) < 0.4).astype(float) if kind == "multilabel" else rng.normal(size=(100, 1))
    group = np.arange(100) // 5
    found = assign_folds(labels, kind, 5, 0, group)
    assert found is not None
    assert all(len(np.unique(found[group == g])) == 1 for g in range(20))
    assert np.bincount(found).min() >= 10


def test_a_feature_that_names_the_group_is_not_chosen() -> None:
    """Twins in both a training and a held-out fold would make the pooling that recognises twins look best."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(60), 4)
    labels = rng.integers(0, 2, 60)[groups]
    twins = np.eye(60)[groups] * 5
    honest = labels[:, None] + rng.normal(scale=0.8, size=(240, 8))
    x = np.hstack([twins, honest]).astype(np.float32)
    pools = {"twins": slice(0, 60), "honest": slice(60, 68)}
    cfg = LinearConfig(rates=(1.0, 10.0), min_steps=200)
    common = {"kind": "class", "names": ("a", "b"), "cfg": cfg, "default_pool": "twins", "seed": 0}
    apart = linear_cached(x, labels, x, pools, groups=groups, **common)
    together = linear_cached(x, labels, x, pools, **common)
    assert (together.pool, apart.pool) == ("twins", "honest")


def test_logistic_regression_validates_on_whole_groups() -> None:
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(40), 5)
    labels = rng.integers(0, 2, 40)[groups]
    x = (np.eye(40)[groups] * 3 + rng.normal(scale=0.1, size=(200, 40))).astype(np.float32)
    cfg = LinearConfig(grid=(1e-6, 1e2))
    common = {"classes": 2, "cfg": cfg, "seed": 0}
    assert linear_probe(x, labels, x, **common).strength == 1e2  # twins reward a fit to every group
    few = linear_probe(x[:15], labels[:15], x, groups=groups[:15], **common)
    assert "fixed" in few.selection
