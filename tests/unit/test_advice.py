"""What to use with some labels: closed cases, properties, and simulations in which the truth is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from ssl_vit.statistics.advice import ALPHA, Advice, Tried, Way, advise, attribute, failures, spent, too_few
from ssl_vit.statistics.contributions import blocks_of
from ssl_vit.statistics.looks import worth_a_draw

KNN, PROBE, TUNED = (Way("mae", use) for use in ("knn", "linear", "train"))
PIXELS, SCRATCH, LONGER, CNN = (
    Way("pixels", "knn"),
    Way("scratch", "train"),
    Way("scratch+", "train"),
    Way("cnn", "train"),
)


def made(
    levels: dict[Way, float], *, draws: int = 5, images: int = 400, seeds: int = 3, seed: int = 0, noise: float = 0.3,
    spread: float = 0.05,
) -> list[Tried]:  # fmt: skip
    """Ways of these accuracies in percent; ``noise`` is that of networks, ``spread`` of draws, 1 that of images."""
    rng = np.random.default_rng(seed)
    hard, drawn, whole = rng.standard_normal(images), spread * rng.standard_normal((draws, 1)), 1 + noise**2
    found: list[Tried] = []
    for way, level in levels.items():
        own = spread * rng.standard_normal((draws, 1)) + noise * rng.standard_normal((draws, images))
        hits = hard + drawn + own + norm.ppf(level / 100) * np.sqrt(whole + 2 * spread**2) > 0
        numbers = np.arange(draws) % seeds if way.start in ("mae", "dino") else None
        found.append(Tried(way, 100.0 * hits, np.arange(draws), numbers, 1.0 if way.start == "mae" else 0.0))
    return found


# What is advised


def test_a_clear_winner_is_advised_alone() -> None:
    found = advise(10, made({PROBE: 80, PIXELS: 50, SCRATCH: 40}))
    assert found.advised == PROBE and found.among == (PROBE,) and found.worse == (PIXELS, SCRATCH)
    assert found.proven and found.settled and not found.reason and not found.failed
    assert found.low is not None and found.high is not None and found.low < 80 < found.high


def test_of_those_that_are_as_good_the_cheapest_is_advised() -> None:
    tried = made({PROBE: 80, KNN: 80, TUNED: 80})
    same = [one._replace(units=tried[0].units) for one in tried]
    assert advise(10, same).advised == KNN and set(advise(10, same).among) == {KNN, PROBE, TUNED}
    assert advise(10, [same[0], same[2]]).advised == PROBE
    dearer = [same[2], same[2]._replace(way=SCRATCH, seeds=None, cost=0.0)]
    assert advise(10, dearer).advised == SCRATCH, "what cost no pre-training"


def test_what_cannot_be_told_apart_but_looks_worse_is_not_advised_for_being_cheap() -> None:
    tried = made({PROBE: 76, KNN: 70}, images=40, noise=2.0)
    found = advise(10, tried)
    assert tried[0].mean - tried[1].mean > 1 and found.among == (PROBE, KNN) and found.advised == PROBE
    assert advise(10, tried, indifferent=2.1 * (tried[0].mean - tried[1].mean)).advised == KNN


def test_one_way_is_advised_and_settled_and_nothing_is_claimed() -> None:
    found = advise(10, made({SCRATCH: 70}))
    assert found.advised == SCRATCH and found.settled and not found.proven and found.worse == ()


@pytest.mark.parametrize(("draws", "seeds", "words"), [
    (2, 3, "too few to tell: 2 draws and 2 pre-training seeds"), (5, 1, "too few to tell: 1 pre-training seed"),
    (1, 1, "too few to tell: 1 draw and 1 pre-training seed"), (4, 2, "too few to tell: 2 pre-training seeds"),
])  # fmt: skip
def test_below_three_draws_or_seeds_nothing_is_told(draws: int, seeds: int, words: str) -> None:
    tried = made({PROBE: 90, KNN: 20}, draws=draws, seeds=seeds)
    found = advise(10, tried)
    assert found.reason == words and not found.worse and not found.settled and not found.proven
    assert found.advised == PROBE, "there is advice all the same"
    assert (found.low is None) == (draws == 1)
    assert attribute(10, tried, made({PIXELS: 20}, draws=draws)).refused == words


def test_weights_from_elsewhere_are_no_seed_of_ours() -> None:
    public = made({Way("public", "linear"): 90, PIXELS: 40})
    assert not too_few(public) and advise(10, public).worse == (PIXELS,)


def test_a_way_with_too_few_draws_stays_among_and_hurts_no_other() -> None:
    few, probe, pixels = made({TUNED: 30, PROBE: 80, PIXELS: 40})
    found = advise(10, [few.at(np.arange(2)), probe, pixels])
    assert found.worse == (PIXELS,) and set(found.among) == {PROBE, TUNED} and found.advised == PROBE
    assert not found.settled and not found.reason


@given(st.permutations(range(5)), st.integers(-50, 50), st.permutations(range(60)))
@settings(max_examples=25, deadline=None)
def test_order_of_ways_and_images_and_a_shift_of_all_change_nothing(
    order: list[int], shift: int, images: list[int]
) -> None:
    tried = made({PROBE: 80, KNN: 77, PIXELS: 60, SCRATCH: 45, CNN: 75}, images=60)
    groups = np.arange(60) // 2
    first = advise(10, tried, groups)
    changed = advise(10, [tried[k]._replace(units=tried[k].units[:, images] + shift) for k in order], groups[images])
    assert (first.advised, first.among, first.worse) == (changed.advised, changed.among, changed.worse)
    assert first.low is not None and changed.low is not None
    assert changed.high - changed.low == pytest.approx(first.high - first.low)  # type: ignore[operator]


def test_more_to_lose_tells_less() -> None:
    tried = made({PROBE: 80, KNN: 76, TUNED: 74, PIXELS: 70, SCRATCH: 60})
    sure = advise(10, tried, alpha=ALPHA)
    for alpha in (ALPHA / 5, ALPHA / 50, 1e-9):
        less = advise(10, tried, alpha=alpha)
        assert set(less.worse) <= set(sure.worse)
        sure = less
    assert not sure.worse


# Failed trainings


def test_a_training_that_learned_nothing_is_reported_and_in_no_mean() -> None:
    tuned, pixels = made({TUNED: 80, PIXELS: 50}, draws=6)
    units = tuned.units.copy()
    units[2] = np.where(np.arange(400) % 10 == 0, 100.0, 0.0)
    found = advise(10, [tuned._replace(units=units), pixels], guess=10.0)
    assert found.failed == ((TUNED, 1, 6),) and found.worse == (PIXELS,)
    assert found.expected == pytest.approx(np.delete(tuned.units, 2, 0).mean())
    counted = advise(10, [tuned._replace(units=units), pixels])
    assert counted.failed == () and counted.expected < 75, "nobody knows what guessing gives"


@pytest.mark.parametrize(("values", "lost"), [
    ([80, 81, 10, 79], [0, 0, 1, 0]), ([80, 10, 10], [0, 1, 1]), ([14, 10, 12], [0, 0, 0]), ([35, 27, 43], [0, 0, 0]),
    ([98, 97, 40], [0, 0, 0]), ([98, 97, 30], [0, 0, 1]), ([52, 40, 28, 19], [0, 0, 0, 0]),
    ([40, 38, 42, 14], [0, 0, 0, 1]), ([30, 18, 14], [0, 0, 0]),
    ([60, 11, 58, 9, 55, 50, 62], [0, 1, 0, 1, 0, 0, 0]),
])  # fmt: skip
def test_failed_is_what_stayed_near_guessing_while_others_learned(values: list[float], lost: list[int]) -> None:
    assert failures(np.array(values, dtype=np.float64), 10.0).tolist() == [bool(one) for one in lost]
    assert not failures(np.array(values, dtype=np.float64), None).any()


# Is it pre-training?


def test_a_gain_is_attributed_to_the_best_against_the_best() -> None:
    found = attribute(10, made({PROBE: 80, TUNED: 60}), made({PIXELS: 50, SCRATCH: 40, LONGER: 45}, seed=1))
    assert (found.way, found.against) == (PROBE, PIXELS) and not found.refused
    assert found.gain is not None and abs(found.gain - 30) < 6 and found.p is not None and found.p < 0.01
    mirrored = attribute(10, made({PIXELS: 50, SCRATCH: 40, LONGER: 45}, seed=1), made({PROBE: 80, TUNED: 60}))
    assert mirrored.gain == pytest.approx(-found.gain) and mirrored.p == pytest.approx(found.p)


def test_one_way_on_each_side_is_the_paired_difference_and_no_surer() -> None:
    from ssl_vit.statistics.paired import interval

    for seed in range(20):
        ours, theirs = made({PROBE: 80, SCRATCH: 70}, seed=seed)
        found, plain = attribute(10, [ours], [theirs]), interval(ours.units - theirs.units, ours.seeds)
        assert found.gain == pytest.approx(plain.estimate) and found.p is not None and found.low is not None
        assert plain.p is not None and plain.low is not None
        assert found.p >= plain.p - 1e-12 and found.low <= plain.low + 1e-9
        assert (found.low > 0) == (found.p < ALPHA), "one variance for both"


def test_sides_without_three_draws_in_common_are_refused() -> None:
    ours, theirs = made({PROBE: 80, SCRATCH: 70})
    found = attribute(10, [ours], [theirs._replace(draws=np.arange(5) + 3)])
    assert found.refused == "too few to tell: 2 draws in common" and found.gain is None


def test_the_better_of_two_equal_baselines_is_not_favoured_by_the_images_it_is_judged_on() -> None:
    """Chosen on what it is judged on, the better of several equal ways is above them all; here it is not."""
    crossed, naive = [], []
    for seed in range(150):
        levels = {SCRATCH: 60.0, LONGER: 60.0, CNN: 60.0, Way("hybrid", "train"): 60.0}
        ours, *theirs = made({PROBE: 60.0} | levels, seed=seed, images=100, noise=1.0)
        found = attribute(10, [ours], theirs)
        assert found.gain is not None
        crossed.append(found.gain)
        naive.append(ours.mean - max(one.mean for one in theirs))
    assert np.mean(naive) < -1.2, "the simulation notices what choosing does"
    assert abs(np.mean(crossed)) < 3 * np.std(crossed) / np.sqrt(150) + 0.1


def test_what_choosing_among_equal_ways_costs_is_no_gain() -> None:
    """Each of four ways is wrong in one image, of another quarter, where the other three quarters say to use it."""
    right = np.full((5, 400), 100.0)
    others = [Tried(Way(f"cnn@{k}", "train"), right.copy(), np.arange(5)) for k in range(4)]
    for k, one in enumerate(others):
        one.units[:, np.flatnonzero(blocks_of(400, None) % 4 == k)[0]] = 0
    found = attribute(10, [Tried(PIXELS, right, np.arange(5))], others)
    assert found.gain == pytest.approx(1.0), "an image of every quarter"
    assert found.low is not None and found.p is not None and found.low < 0 and found.p > ALPHA, "one image, in truth"


def test_draws_of_one_pretraining_do_not_choose_for_each_other() -> None:
    """A lucky pre-training seed would otherwise choose itself: its way would be judged at 60."""
    seeds, flat = np.repeat([0, 1, 2], 2), np.ones((6, 40))
    lucky = Tried(PROBE, np.where(seeds == 0, 100.0, 40.0)[:, None] * flat, np.arange(6), seeds)
    steady, other = Tried(TUNED, 50.0 * flat, np.arange(6), seeds), Tried(PIXELS, 30.0 * flat, np.arange(6))
    found = attribute(10, [lucky, steady], [other])
    assert found.way == PROBE and found.gain == pytest.approx((50 + 40 + 40) / 3 - 30)


@pytest.mark.parametrize(("draws", "images"), [(3, 150), (5, 40)])
def test_an_attribution_holds_the_truth_where_the_choice_is_noise(draws: int, images: int) -> None:
    inside: list[bool] = []
    for seed in range(200):
        ways = [Way(f"mae@{k}", "linear") for k in range(3)] + [Way(f"cnn@{k}", "train") for k in range(4)]
        tried = made(dict.fromkeys(ways, 70.0), draws=draws, images=images, noise=0.8, seed=seed)
        found = attribute(10, tried[:3], tried[3:], span=100.0)
        assert found.low is not None and found.high is not None
        inside.append(found.low <= 0 <= found.high)
    assert np.mean(inside) >= 0.93


# What intervals and sets hold


def many(times: int, levels: dict[Way, float], **options: float) -> Sequence[Advice]:
    return [advise(10, made(levels, seed=seed, **options)) for seed in range(times)]  # type: ignore[arg-type]


def test_what_to_expect_holds_the_truth_after_the_choice_too() -> None:
    ways = {Way(f"cnn@{k}", "train"): 70.0 for k in range(6)}
    found = many(300, ways, images=150, noise=0.8)
    inside = [one.low is not None and one.high is not None and one.low <= 70 <= one.high for one in found]
    assert 0.92 <= np.mean(inside) <= 0.99
    highest = [max(t.mean for t in made(ways, seed=seed, images=150, noise=0.8)) for seed in range(300)]
    assert np.mean(highest) > 71 and abs(np.mean([one.expected for one in found]) - 70) < 0.6


def test_the_best_is_rarely_told_to_be_worse() -> None:
    levels = {PROBE: 70.0, KNN: 70.0, TUNED: 70.0, PIXELS: 70.0, SCRATCH: 70.0, CNN: 70.0}
    lost = [PROBE in one.worse for one in many(300, levels, images=150)]
    assert np.mean(lost) <= 0.05


# Looks


def test_looks_together_spend_what_there_is() -> None:
    for most in (0, 3, 4, 5, 10, 20):
        assert sum(spent(draws, most) for draws in range(3, max(most, 3) + 1)) == pytest.approx(1)


def test_a_settled_number_of_labels_needs_no_more_draws_and_others_only_of_what_is_left() -> None:
    clear, close = made({PROBE: 80, PIXELS: 40}), made({PROBE: 80, KNN: 80, PIXELS: 40}, seed=4)
    found = worth_a_draw({10: clear, 100: close}, 10)
    assert found[10] == frozenset() and found[100] == {PROBE, KNN}
    advice = advise(100, close, alpha=ALPHA / 2, most=10)
    assert found[100] == {advice.advised, *advice.rivals} and not advice.settled
    assert worth_a_draw({10: [one.at(np.arange(2)) for one in clear]}, 10)[10] == {PROBE, PIXELS}


def test_looking_after_every_draw_says_little_that_is_false() -> None:
    levels, wrong = {PROBE: 72.0, KNN: 70.0, PIXELS: 70.0, SCRATCH: 70.0, CNN: 70.0}, 0
    for seed in range(150):
        whole = made(levels, draws=8, seed=seed, images=200, spread=0.1)
        for draws in range(3, 9):
            found = advise(10, [one.at(np.arange(draws)) for one in whole], most=8)
            wrong += PROBE in found.worse or (found.proven and found.advised != PROBE)
            if PROBE in found.worse:
                break
    assert wrong / 150 <= 0.05
