"""Intervals and tests: closed cases, symmetries, and coverage where every source of chance is there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import statsmodels.api
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from ssl_vit.statistics.contributions import accuracy_units, balanced_units, blocks_of, pseudo_values
from ssl_vit.statistics.families import holm, shared_spread
from ssl_vit.statistics.paired import (
    Interval,
    conditional,
    estimate_many,
    interval,
    labels_needed,
    mcnemar,
)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def check(found: Interval, expected: object) -> None:
    """Against a t test of scipy."""
    low, high = expected.confidence_interval()
    assert found.low is not None and found.high is not None and found.p is not None
    assert np.allclose((found.low, found.high, found.p), (low, high, expected.pvalue))


# Closed cases


def test_where_only_draws_vary_it_is_the_paired_t_interval(rng: np.random.Generator) -> None:
    ours, theirs = rng.normal(80, 2, 5), rng.normal(78, 2, 5)
    expected = stats.ttest_rel(ours, theirs)
    for images in (1, 30):
        found = interval(np.repeat((ours - theirs)[:, None], images, 1))
        check(found, expected)
        assert found.df == pytest.approx(4)
    assert "not in it" in interval((ours - theirs)[:, None]).note


def test_where_only_test_images_vary_it_is_the_t_interval_over_images(rng: np.random.Generator) -> None:
    images = rng.normal(1, 10, 40)
    check(interval(np.tile(images, (5, 1))), stats.ttest_1samp(images, 0))


def test_clusters_are_what_varies_where_images_have_some(rng: np.random.Generator) -> None:
    clusters = np.arange(40) // 5
    images = rng.normal(0, 3, 8)[clusters] + rng.normal(0, 1, 40)
    found = interval(np.tile(images, (3, 1)), clusters=clusters)
    check(found, stats.ttest_1samp(images.reshape(8, 5).mean(1), 0))
    fit = statsmodels.api.OLS(images, np.ones(40)).fit(cov_type="cluster", cov_kwds={"groups": clusters})
    assert estimate_many(np.tile(images, (1, 3, 1)), None, clusters).error[0] == pytest.approx(fit.bse[0])


def test_draws_of_one_backbone_are_no_new_backbones(rng: np.random.Generator) -> None:
    values, seeds = rng.normal(0, 2, 6), np.array([0, 1, 2, 0, 1, 2])
    check(interval(values[:, None], seeds), stats.ttest_1samp(values.reshape(2, 3).mean(0), 0))


def test_few_backbones_leave_the_spread_of_draws_within_them(rng: np.random.Generator) -> None:
    values = rng.normal(0, 2, 6)
    check(interval(values[:, None], np.zeros(6, dtype=np.int64)), stats.ttest_1samp(values, 0))
    two = interval(values[:, None] + np.array([0, 100] * 3)[:, None], np.array([0, 1] * 3))
    within = np.sqrt((values[::2].var(ddof=1) + values[1::2].var(ddof=1)) / 2 / 6)
    assert two.df == pytest.approx(4) and two.low == pytest.approx(two.estimate - stats.t.ppf(0.975, 4) * within)
    assert conditional(np.array([0, 1])) and not conditional(np.arange(3)) and not conditional(None)


def test_what_cannot_be_known_is_not_given(rng: np.random.Generator) -> None:
    alone = interval(rng.normal(size=(1, 50)))
    assert alone.low is None and alone.p is None and "One draw" in alone.note
    alike = interval(np.zeros((5, 50)))
    assert (alike.estimate, alike.low, alike.p) == (0, None, 1)
    same = interval(np.full((5, 1), 0.3))
    assert same.low is None and same.p is None and "same in every draw" in same.note
    one_group = interval(rng.normal(size=(5, 50)), clusters=np.zeros(50, dtype=np.int64))
    assert "not in it" in one_group.note and one_group.low is not None


def test_shares_say_where_chance_comes_from(rng: np.random.Generator) -> None:
    assert interval(np.tile(rng.normal(size=40), (5, 1))).shares == {"draws": pytest.approx(0), "test images": 100}
    rows = np.repeat(rng.normal(size=(6, 1)), 40, 1)
    assert interval(rows, np.arange(6) % 3).shares["pre-training seeds and draws"] == pytest.approx(100)


def test_no_interval_is_narrower_than_chance_in_the_test_images_alone(rng: np.random.Generator) -> None:
    matrix = rng.normal(0, 10, (3, 60)) + rng.normal(0, 2, 60)
    lucky = matrix - matrix.mean(1, keepdims=True) + np.array([[-4.0], [-4.01], [-3.99]])  # all draws agree, by luck
    images = stats.ttest_1samp(lucky.mean(0), 0)
    for seeds in (np.arange(3), None):
        check(interval(lucky, seeds), images)


def test_holm() -> None:
    assert holm([0.01, None, 0.04, 0.03]) == [pytest.approx(0.03), None, pytest.approx(0.06), pytest.approx(0.06)]
    assert holm([None]) == [None] and holm([]) == []


def test_a_spread_that_is_small_by_luck_is_held_against_those_beside_it(rng: np.random.Generator) -> None:
    matrices = 10 + np.array([0.01, 5])[:, None, None] * rng.normal(size=(2, 3, 1))
    found = estimate_many(matrices, np.arange(3))
    together, apart = shared_spread(found), shared_spread(found, np.array([0, 1]))
    assert found.p[0] < 1e-4 and together.p[0] > 100 * found.p[0]
    assert np.allclose(together.replicates, [found.replicates.mean(), found.replicates[1]]) and (together.df == 3).all()
    assert np.allclose(apart.p, found.p) and np.allclose(apart.margin, found.margin)


def test_a_comparison_alone_gets_the_fewest_degrees_of_freedom(rng: np.random.Generator) -> None:
    found = estimate_many(3 + 2 * rng.normal(size=(1, 3, 1)) + rng.normal(0, 9, (1, 3, 90)), np.arange(3))
    assert shared_spread(found).freedom[0] < found.freedom[0] and shared_spread(found).error == found.error


def test_mcnemar_is_the_exact_test_of_images_that_one_alone_has_right() -> None:
    first = np.array([1] * 9 + [0] * 2 + [1] * 20 + [0] * 5, dtype=bool)
    second = np.array([0] * 9 + [1] * 2 + [1] * 20 + [0] * 5, dtype=bool)
    found = mcnemar(first, second)
    assert (found.only_first, found.only_second) == (9, 2) and "checkpoints only" in found.note
    assert found.p == pytest.approx(stats.binomtest(2, 11).pvalue)
    assert mcnemar(first, first).p == 1


def test_units_have_the_metric_as_their_mean(rng: np.random.Generator) -> None:
    labels, hits = rng.integers(0, 2, 90) ** 2, rng.random(90) < 0.7
    assert accuracy_units(hits).mean() == pytest.approx(100 * hits.mean())
    predicted = np.where(hits, labels, (labels + 1) % 2)
    assert balanced_units(hits, labels).mean() == pytest.approx(100 * balanced_accuracy_score(labels, predicted))
    assert np.ptp(balanced_units(labels > 0, labels)) == pytest.approx(0), "recalls of 0 and 1 are no chance"


def test_pseudo_values_of_a_mean_are_means_of_blocks_and_of_others_have_their_value(rng: np.random.Generator) -> None:
    hits, blocks = rng.random(200), blocks_of(200)
    means = np.array([hits[blocks == b].mean() for b in range(50)])
    assert np.allclose(pseudo_values(lambda kept: float(hits[kept].mean()), blocks), means)
    labels, scores = rng.integers(0, 2, 200), rng.random(200)
    found = pseudo_values(lambda kept: float(roc_auc_score(labels[kept], scores[kept])), blocks)
    assert found.shape == (50,) and found.mean() == pytest.approx(roc_auc_score(labels, scores))
    undefined = pseudo_values(lambda kept: 0.5 if 0 in kept else None, blocks)
    assert np.allclose(undefined, 0.5)


def test_blocks_keep_groups_together(rng: np.random.Generator) -> None:
    clusters = rng.integers(0, 70, 500)
    blocks = blocks_of(500, clusters)
    assert len(np.unique(blocks)) == 50 and all(len(np.unique(blocks[clusters == c])) == 1 for c in clusters)
    assert len(np.unique(blocks_of(500, clusters % 7))) == 7


# Labels that are saved


def noisy(mean: float, draws: int = 6, images: int = 200) -> np.ndarray:
    """Units around a mean, the same images for all."""
    return mean + np.random.default_rng(1).normal(0, 1, (draws, images))


def curve(*means: float, noise: float = 1) -> dict[int, np.ndarray]:
    """Units at three numbers of labels."""
    rng = np.random.default_rng(2)
    return {
        count: mean + noise * (0.5 * rng.normal(size=(6, 1)) + 3 * rng.normal(size=(6, 200)))
        for count, mean in zip((10, 30, 90), means, strict=True)
    }


def test_labels_needed_are_read_off_the_line_over_log_labels() -> None:
    found = labels_needed(curve(0, 10, 20, noise=0), np.full((6, 200), 15.0))
    assert found.labels == pytest.approx(30 * 3**0.5) and found.low == found.high == found.labels
    found = labels_needed(curve(0, 10, 20), noisy(15))
    assert found.labels and found.low and found.high and 30 < found.low < found.labels < found.high < 90


@pytest.mark.parametrize(
    ("means", "level", "reached", "at_once", "low", "high"),
    [
        ((0, 10, 20), 30, False, False, 90, None),
        ((0, 10, 20), 20.2, False, False, "inside", None),
        ((0, 10, 20), -10, True, True, None, 10),
        ((0, 10, 20), 0, None, None, None, "inside"),
        ((10, 10, 10), 10, None, None, None, None),
        ((0, 20, 0), 10, True, False, "inside", None),  # falls below again
        ((20, 10, 0), 10, True, True, None, None),  # is there with few labels, and no more with many
        ((10, 0, -10), 10.2, None, None, None, None),  # as good as the level with the fewest, then worse
    ],
)
def test_labels_needed_has_open_ends(
    means: tuple[float, ...], level: float, reached: bool | None, at_once: bool | None, low: object, high: object
) -> None:
    found = labels_needed(curve(*means), noisy(level))
    if reached is not None:
        assert (found.labels is not None, found.at_once) == (reached, at_once)
    for end, expected in ((found.low, low), (found.high, high)):
        assert (end is not None and 10 < end < 90) if expected == "inside" else end == expected
    if means == (0, 20, 0):
        assert found.low is not None and found.low < 30


def test_labels_needed_without_chance_or_with_one_draw(rng: np.random.Generator) -> None:
    level = noisy(10, 1)
    alone = labels_needed({10: level - 1, 40: level + 1}, level)
    assert alone.labels == pytest.approx(20) and alone.low is None and "One draw" in alone.note
    level = noisy(10)
    same = labels_needed({10: level, 100: level}, level)
    assert same.labels == 10 and same.at_once and same.low is None and same.high is None and not same.note
    two = labels_needed({10: noisy(0, 2), 100: noisy(20, 2)}, noisy(10, 2), np.array([0, 1]))
    assert two.labels is not None and not two.note
    one_count = labels_needed({10: noisy(0)}, noisy(10) + np.arange(6)[:, None] / 10)
    assert one_count.labels is None and one_count.low == 10 and one_count.high is None


def test_nothing_is_read_off_between_numbers_of_labels_that_are_far_apart() -> None:
    found = labels_needed({100: noisy(0), 1438: noisy(20)}, noisy(10))
    assert (found.labels, found.at_once, found.low, found.high) == (1438, True, 100, 1438)
    near = labels_needed({100: noisy(0), 350: noisy(20)}, noisy(10))
    assert near.labels and near.low and near.high and 100 < near.low <= near.labels <= near.high < 350
    beyond = labels_needed({100: noisy(0), 350: noisy(20), 1438: noisy(30)}, noisy(10))
    assert (beyond.labels, beyond.low, beyond.high) == (near.labels, near.low, near.high)
    later = labels_needed({100: noisy(0), 350: noisy(5), 1438: noisy(30)}, noisy(10))
    assert (later.labels, later.at_once, later.low, later.high) == (1438, True, 350, 1438)


# Symmetries

matrices = st.tuples(st.integers(2, 7), st.integers(1, 9), st.integers(0, 2**32 - 1), st.booleans(), st.booleans())


def made(case: tuple[int, int, int, bool, bool]) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    draws, images, seed, nested, grouped = case
    rng = np.random.default_rng(seed)
    matrix = rng.normal(1, 1, (draws, images)) + rng.normal(size=(draws, 1))
    return matrix, np.arange(draws) % 3 if nested else None, np.arange(images) // 2 if grouped else None


@given(matrices)
def test_swapping_mirrors_shifting_shifts_and_order_does_not_matter(case: tuple[int, int, int, bool, bool]) -> None:
    matrix, seeds, clusters = made(case)
    found, mirrored, shifted = (interval(m, seeds, clusters) for m in (matrix, -matrix, matrix + 5))
    assert found.low is not None and found.high is not None
    assert np.allclose((mirrored.low, mirrored.high, mirrored.p), (-found.high, -found.low, found.p))
    assert np.allclose((shifted.low, shifted.high), (found.low + 5, found.high + 5))
    rows, columns = (np.random.default_rng(case[2]).permutation(n) for n in matrix.shape)
    mixed = interval(
        matrix[rows][:, columns],
        None if seeds is None else seeds[rows],
        None if clusters is None else clusters[columns],
    )
    assert np.allclose((mixed.low, mixed.high, mixed.p), (found.low, found.high, found.p))
    assert (found.p is not None and found.p < 0.05) == (found.low > 0 or found.high < 0)


# Coverage: the large simulation is benchmarks/bench_statistics.py


@dataclass(frozen=True)
class World:
    """Standard deviations of two equal methods' chances, on the scale of a probit."""

    draws: int = 6
    seeds: int = 3
    images: int = 180
    clusters: int = 60
    seed: float = 0.0
    draw: float = 0.05
    image: float = 0.5
    group: float = 0.0
    """Of groups of images, for each method its own; likewise ``image``."""

    def differences(self, times: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Hits of the one less hits of the other, in percent, as often as asked; seeds; clusters."""
        rng = np.random.default_rng(3)
        seeds, clusters = np.arange(self.draws) % self.seeds, np.arange(self.images) * self.clusters // self.images
        common = rng.standard_normal((times, 1, self.images))
        hits = []
        for method in range(2):
            own = self.image * rng.standard_normal((times, 1, self.images))
            own = own + self.group * rng.standard_normal((times, 1, self.clusters))[..., clusters]
            drawn = rng.standard_normal((times, self.draws, 1)) * self.draw
            # Every network of the baseline starts from a seed of its own.
            begun = rng.standard_normal((times, self.draws if method else self.seeds, 1)) * self.seed
            ability = 1.0 + drawn + (begun if method else begun[:, seeds])
            hits.append(rng.standard_normal((times, self.draws, self.images)) < ability + common + own)
        return 100.0 * (hits[0].astype(np.float64) - hits[1]), seeds, clusters


def coverage(matrices: np.ndarray, seeds: np.ndarray | None, clusters: np.ndarray | None) -> float:
    """In percent, of the true difference, which is 0."""
    found = estimate_many(matrices, seeds, clusters)
    return 100 * float((np.abs(found.estimate) <= found.margin).mean())


TIMES = 1500
WORLDS = {
    "nothing but networks' noise": World(draw=0, image=0),
    "test images": World(draw=0, image=1.0),
    "draws": World(draws=5, seeds=5, draw=0.3),
    "seeds": World(draws=10, seed=0.4),
    "groups": World(group=1.0),
    "all": World(draws=5, seed=0.1, draw=0.1, group=0.3),
}


@pytest.mark.parametrize("name", WORLDS)
def test_intervals_cover_what_they_should_whatever_chance_comes_from(name: str) -> None:
    # Wider than they need to be where networks differ in nothing but noise: no interval ignores the test images.
    assert 93 <= coverage(*WORLDS[name].differences(TIMES)) <= (99.5 if "noise" in name else 97.5)


def test_the_simulation_notices_what_an_estimator_leaves_out() -> None:
    matrices, seeds, clusters = WORLDS["seeds"].differences(TIMES)
    assert coverage(matrices, None, clusters) < 90, "seeds"
    matrices, seeds, clusters = WORLDS["groups"].differences(TIMES)
    assert coverage(matrices, seeds, None) < 90, "groups"
    matrices, seeds, _ = WORLDS["test images"].differences(TIMES)
    assert coverage(matrices.mean(-1, keepdims=True), seeds, None) < 90, "test images"


def test_one_backbone_covers_its_own_mean_and_no_others() -> None:
    world = World(draws=5, seeds=1, seed=0.3)
    matrices, seeds, clusters = world.differences(TIMES)
    assert coverage(matrices, seeds, clusters) < 80
    assert 93 <= coverage(*World(draws=5, seeds=1, draw=0.1).differences(TIMES)) <= 97.5


def alarms(seeds: list[float], draw: float, baseline: float, gain: float = 0) -> tuple[np.ndarray, np.ndarray]:
    """What Holm's first step calls a difference in 400 tables [times, methods, 3 numbers of labels].

    Args:
        seeds: Standard deviation between pre-training seeds, of every method.
        draw: Between draws of a method.
        baseline: Between draws of the baseline.
        gain: Of the first method.

    Returns:
        By spreads that know of each other, and by each comparison's own.
    """
    rng, shape = np.random.default_rng(5), (400, len(seeds), 3)
    begun = rng.standard_normal((*shape[:2], 1, 3, 1))[..., np.arange(5) % 3, :] * np.reshape(seeds, (-1, 1, 1, 1))
    drawn = draw * rng.standard_normal((*shape, 5, 1)) + baseline * rng.standard_normal((400, 1, 3, 5, 1))
    images = rng.standard_normal((*shape, 1, 30)) + 0.3 * rng.standard_normal((*shape, 5, 30))
    units = begun + drawn + images
    units[:, 0] += gain
    found = estimate_many(units.reshape(-1, 5, 30), np.arange(5) % 3, None)
    time, _, count = np.indices(shape).reshape(3, -1)
    first, second = (
        p.reshape(shape) * (3 * len(seeds)) < 0.05 for p in (shared_spread(found, 3 * time + count).p, found.p)
    )
    return first, second


@pytest.mark.parametrize(
    ("seeds", "draw", "baseline"),
    [
        ([0.0] * 8, 1.0, 0.5),
        ([1.0] * 8, 0.1, 0.5),
        ([0.0] * 8, 0.0, 1.0),
        ([1.0] * 3, 0.5, 0.5),
        ([2.0, 0, 0], 0.2, 0.0),
    ],
)
def test_a_table_of_equal_methods_rarely_holds_an_alarm(seeds: list[float], draw: float, baseline: float) -> None:
    found, own = alarms(seeds, draw, baseline)
    assert found.any((1, 2)).mean() <= 0.065
    if draw == 1:
        assert own.any((1, 2)).mean() > 0.15, "the simulation notices what few seeds do to small p-values"


def test_a_table_finds_a_large_gain_and_nothing_else() -> None:
    found, own = alarms([1.0] * 8, 0.5, 1.0, gain=15)
    assert found[:, 0].mean() > 0.85 > own[:, 0].mean() and found[:, 1:].any((1, 2)).mean() <= 0.065


def test_labels_needed_covers_the_true_number() -> None:
    rng, inside, times = np.random.default_rng(4), 0, 300
    counts, means, truth = (10, 30, 90), (-1.0, 0.0, 1.0), 30 * 3**0.4
    seeds, clusters = np.arange(5) % 3, np.arange(120) // 2
    for _ in range(times):
        easy, seed = rng.standard_normal((1, 60))[:, clusters], 0.1 * rng.standard_normal(3)[seeds, None]
        levels = {
            n: m + seed + 0.1 * rng.standard_normal((5, 1)) + 0.5 * easy + rng.standard_normal((5, 120))
            for n, m in zip(counts, means, strict=True)
        }
        found = labels_needed(
            levels, 0.4 + 0.1 * rng.standard_normal((5, 1)) + rng.standard_normal((5, 120)), seeds, clusters
        )
        inside += (found.low or 0) <= truth <= (found.high or np.inf)
    assert 0.92 <= inside / times <= 0.985
