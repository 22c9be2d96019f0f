"""The search for options: as many trials for everyone, and no label that is not counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ssl_vit.verdict.tuning import Candidate, best, candidates, nearest, tuned_counts

USUAL = {"scratch": Candidate(1e-3, 0.05, 1.0, 1.0), "finetune": Candidate(5e-4, 0.05, 0.75, 1.0)}


@pytest.mark.parametrize("task", USUAL)
@given(trials=st.integers(1, 20), seed=st.integers(0, 10_000))
def test_candidates(task: str, trials: int, seed: int) -> None:
    usual = USUAL[task]
    found = candidates(usual, trials, seed)
    assert found[0] == usual
    assert len(found) == trials
    assert found == candidates(usual, trials, seed)
    if trials >= 2:
        assert 1.0 in {c.layer_decay for c in found}
        assert len({c.lr for c in found}) >= 0.7 * trials  # two may agree once rounded
        assert len({c.length for c in found}) >= 2
    if trials >= 4:
        assert {c.length for c in found[1:]} == {0.5, 1.0, 2.0}
    for c in found:
        assert usual.lr / 4.02 <= c.lr <= usual.lr * 4.02
        assert 0.0049 <= c.weight_decay <= 0.51
        assert 0.6 <= c.layer_decay <= 1.0


def test_the_best_trial() -> None:
    assert best([1.0, 3.0, 3.0, None]) == 1
    assert best([None, -2.0]) == 1
    assert best([None, None]) == 0


def test_where_options_are_tuned() -> None:
    assert tuned_counts((10, 50, 100, 1438), {10: 0, 50: 10, 100: 20, 1438: 287}) == (100, 1438)
    assert tuned_counts((50,), {50: 16}) == (50,)
    assert tuned_counts((10, 20), {10: 0, 20: 0}) == ()


@given(st.lists(st.integers(1, 1000), max_size=4), st.integers(1, 1000))
def test_a_choice_rests_on_no_more_labels_than_are_counted(tuned: list[int], labels: int) -> None:
    found = nearest(labels, tuned)
    if found is None:
        assert all(n > labels for n in tuned)
    else:
        assert found <= labels
        assert not any(found < n <= labels for n in tuned)
