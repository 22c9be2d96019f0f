"""Cached linear probes: what stacking, folds and selection must not change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from ssl_vit.configs import LinearConfig
from ssl_vit.core.errors import UserError
from ssl_vit.evaluation import linear_cached as module
from ssl_vit.evaluation.few_label import assign_folds
from ssl_vit.evaluation.linear_cached import CachedFit, linear_cached, train_heads

CFG = LinearConfig(rates=(0.1, 1.0, 10.0), decays=(1e-4, 1e-3), min_steps=60, passes=5.0, batch_size=64, folds=3)
WHOLE = {"all": slice(None)}


def blobs(n: int, classes: int = 3, seed: int = 0, width: int = 8, noise: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    centres = np.random.default_rng(42).normal(size=(classes, width)) * 2
    return (centres[labels] + noise * rng.normal(size=(n, width))) * 7 + 3, labels


def solve(x: np.ndarray, y: np.ndarray, queries: np.ndarray, *, cfg: LinearConfig = CFG, **options: Any) -> CachedFit:
    given = {"pools": WHOLE, "kind": "class", "names": ("a", "b", "c"), "default_pool": "all", "seed": 0} | options
    return linear_cached(x, y, queries, cfg=cfg, **given)


def targets(y: np.ndarray, parts: np.ndarray) -> Any:
    return module._targets(y, "class", 3, parts, torch.zeros(1, dtype=torch.float64))


def test_separable_classes_are_recovered() -> None:
    x, y = blobs(90, noise=0.1)
    fit = solve(x, y, x)
    assert (fit.scores.argmax(1) == y).all()
    assert fit.validated == 100.0
    assert "best of 6 x 1 by 3-fold" in fit.selection


def test_comes_close_to_logistic_regression() -> None:
    x, y = blobs(300, noise=3.0)
    queries, truth = blobs(600, seed=1, noise=3.0)
    ours = (solve(x, y, queries).scores.argmax(1) == truth).mean()
    theirs = (LogisticRegression(max_iter=1000).fit((x - 3) / 7, y).predict((queries - 3) / 7) == truth).mean()
    assert 0.6 < theirs < 0.98  # a problem with something to lose
    assert ours > theirs - 0.02


def test_random_labels_validate_at_chance() -> None:
    """More features than images: heads fit everything they see, so any leak would show as a high score."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(120, 200)), rng.permutation(np.arange(120) % 3)
    fit = solve(x, y, x, cfg=replace(CFG, min_steps=200))
    assert (fit.scores.argmax(1) == y).mean() > 0.95
    assert fit.validated is not None
    assert fit.validated < 55


def test_a_folds_head_knows_nothing_of_its_fold() -> None:
    x, y = (torch.from_numpy(a) for a in blobs(90))
    folds = assign_folds(y.numpy(), "class", 3, 0)
    assert folds is not None
    parts = np.stack([folds != 0, np.ones(90, dtype=bool)])
    before = train_heads(x, targets(y.numpy(), parts), "class", [(1.0, 1e-4)], CFG, 0)
    x[torch.from_numpy(folds == 0)] *= -50.0
    y[torch.from_numpy(folds == 0)] = 0
    after = train_heads(x, targets(y.numpy(), parts), "class", [(1.0, 1e-4)], CFG, 0)
    for old, new in zip(before, after, strict=True):
        assert torch.equal(old[0], new[0])
    assert not torch.allclose(before.weight[1], after.weight[1])


def test_stacked_heads_are_heads_trained_alone() -> None:
    x, y = blobs(150)
    rows, folds = torch.from_numpy(x), assign_folds(y, "class", 3, 0)
    parts = np.stack([*(folds != f for f in range(3)), np.ones(150, dtype=bool)])
    pairs = [(0.1, 1e-3), (1.0, 1e-4), (10.0, 0.0)]
    together = train_heads(rows, targets(y, parts), "class", pairs, CFG, 0)
    for p in range(4):
        for h, pair in enumerate(pairs):
            alone = train_heads(rows, targets(y, parts[p : p + 1]), "class", [pair], CFG, 0)
            assert (together.weight[p, h] - alone.weight[0, 0]).abs().max() <= 1e-10
            assert (together.outputs(rows, p, h) - alone.outputs(rows, 0, 0)).abs().max() <= 1e-10
    # In one batch, giving rows the weight zero is leaving them out.
    whole, chosen = replace(CFG, batch_size=150), folds != 0
    fold = train_heads(rows, targets(y, parts[:1]), "class", pairs[:1], whole, 0)
    ones = np.ones((1, int(chosen.sum())), dtype=bool)
    subset = train_heads(rows[torch.from_numpy(chosen)], targets(y[chosen], ones), "class", pairs[:1], whole, 0)
    assert (fold.weight - subset.weight).abs().max() <= 1e-10


def test_one_head_is_torchs_sgd() -> None:
    x, y = blobs(40)
    rows, cfg = torch.from_numpy(x), replace(CFG, min_steps=12, passes=1.0)
    found = train_heads(rows, targets(y, np.ones((1, 40), dtype=bool)), "class", [(0.5, 0.01)], cfg, 0)
    z = (rows - rows.mean(0)) / rows.std(0, correction=0) / 8**0.5
    layer = torch.nn.Linear(8, 3).double()
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    groups = [{"params": [layer.weight], "weight_decay": 0.01}, {"params": [layer.bias]}]
    optimizer = torch.optim.SGD(groups, lr=0.5, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)
    for _ in range(12):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(layer(z), torch.from_numpy(y)).backward()
        optimizer.step()
        schedule.step()
    assert (found.weight[0, 0].T - layer.weight).abs().max() <= 1e-9
    assert (found.bias[0, 0, 0] - layer.bias).abs().max() <= 1e-9


def test_few_heads_at_a_time_choose_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = blobs(90, noise=3.0)
    pools = {"left": slice(0, 4), "all": slice(None)}
    whole = solve(x, y, x, pools=pools)
    monkeypatch.setattr(module, "_ELEMENTS", 1)
    parts = solve(x, y, x, pools=pools)
    assert parts[1:] == whole[1:]
    assert np.allclose(parts.scores, whole.scores)


def test_the_pooling_that_tells_classes_apart_is_chosen() -> None:
    x, y = blobs(90)
    noise = np.random.default_rng(1).normal(size=x.shape)
    fit = solve(np.hstack([noise, x]), y, np.hstack([noise, x]), pools={"noise": slice(0, 8), "signal": slice(8, 16)})
    assert fit.pool == "signal"


def test_ties_go_to_the_cautious_and_the_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "judge", lambda *_, only: {only: 50.0})
    x, y = blobs(90)
    fit = solve(x, y, x, pools={"first": slice(0, 4), "second": slice(None)})
    assert (fit.pool, fit.rate, fit.decay) == ("first", 0.1, 1e-3)


def test_few_labels_use_the_documented_defaults() -> None:
    x, y = blobs(7)
    fit = solve(x, y, x, pools={"left": slice(0, 4), "all": slice(None)})
    assert (fit.pool, fit.rate, fit.decay, fit.validated) == ("all", CFG.default_rate, CFG.default_decay, None)
    assert "fixed: too few labels" in fit.selection


def test_one_class_is_refused_and_an_unseen_one_never_predicted() -> None:
    x, y = blobs(90)
    with pytest.raises(UserError, match="two classes"):
        solve(x, np.zeros_like(y), x)
    fit = solve(x[y != 1], y[y != 1], x)
    assert np.isneginf(fit.scores[:, 1]).all()


def test_constant_features_do_no_harm() -> None:
    x, y = blobs(90, noise=0.1)
    fit = solve(np.hstack([x, np.full((90, 2), 5.0)]), y, np.hstack([x, np.full((90, 2), 6.0)]))
    assert (fit.scores.argmax(1) == y).all()


def test_numbers_come_back_in_their_own_units() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 4))
    y = np.stack([1000 + 50 * x[:, 0], x[:, 1] - x[:, 2]], axis=1)
    fit = solve(
        x,
        y,
        x,
        kind="regression",
        names=("u", "v"),
        cfg=replace(CFG, decays=(0.0, 1.0), rates=(1.0,)),
        metric="mean_absolute_error",
    )
    assert fit.decay == 0.0  # a smaller error is better
    assert (np.abs(fit.scores - y).mean(axis=0) < [1.0, 0.05]).all()  # of deviations of 50 and 1.4


def test_labels_are_learned_one_by_one() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 4))
    y = (x[:, :2] > 0).astype(np.float64)
    fit = solve(x, y, x, kind="multilabel", names=("u", "v"))
    assert ((fit.scores > 0) == y).mean() > 0.95


def test_a_label_that_is_in_no_image_of_a_fold_leaves_the_others_to_choose_by() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4))
    y = np.zeros((60, 1))
    y[[0, 1]] = 1  # two folds of three have one
    fit = solve(x, y, x, kind="multilabel", names=("rare",))
    assert fit.selection.startswith("best of 6 x 1 by 3-fold cross-validation")


def test_labels_of_classes_are_kept_as_they_are_and_rows_made_for_a_step() -> None:
    """A thousand classes of a million images would be 4 GB of zeros and ones."""
    y = np.array([2, 0, 1, 1])
    found = targets(y, np.ones((1, 4), dtype=bool))
    assert found.values.numel() == 4
    rows = torch.tensor([3, 0, 0])
    assert torch.equal(found.at(rows), torch.from_numpy(np.eye(3)[y])[rows])
    numbers = module._targets(np.eye(4)[:, :2], "regression", 2, np.ones((1, 4), dtype=bool), torch.zeros(1))
    assert torch.equal(numbers.at(rows), torch.eye(4)[rows, :2])


def test_numbers_far_from_zero_keep_their_spread() -> None:
    """Seconds since 1970, or a map's coordinates: single precision alone has steps of 128 there."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 8))
    y = x @ rng.normal(size=(8, 1)) * 40
    near, far = (solve(x, at + y, x, kind="regression", names=("taken",)).scores - at for at in (0.0, 1.7e9))
    assert np.abs(near - y).mean() < 5 and np.abs(far - near).max() < 1e-3


def test_a_rate_that_diverges_on_numbers_is_lowered_and_said() -> None:
    """Steps on a squared error grow without end above a rate that the features' largest direction decides."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 8)) + 4 * rng.normal(size=(200, 1))
    y = x.sum(axis=1, keepdims=True) * 5 + 100
    numbers = {"kind": "regression", "names": ("age",)}
    one = replace(CFG, rates=(10.0,), decays=(1e-4,))
    fit = solve(x, y, x, cfg=one, **numbers)
    assert np.abs(fit.scores - y).mean() < np.abs(y - y.mean()).mean()
    assert fit.rate < 10.0
    assert fit.selection == "fixed: the only candidate; a learning rate of 10 diverged"
    assert solve(x, y, x, **numbers).rate < 10.0, "what diverges is not chosen"
    assert solve(*blobs(90), blobs(90)[0], cfg=one).rate == 10.0, "classes are as they were"
