"""What to use with a number of labels, and whether a gain is pre-training's (docs/statistics.md). Needs no torch.

Recommendation is multiple comparisons with the best (Hsu 1981): a way is told to be worse where it is behind the best
of these draws clearly, one-sided, after Bonferroni's adjustment for all ways. So the best there is stays among the rest
in 95 % of tables, and no sentence stands on a winner's luck. What to expect of the advised way is judged on images and
draws that did not choose it (cross-fitting), and so are both sides of an attribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats as _untyped_stats  # pyright: ignore[reportMissingTypeStubs]

from ssl_vit.statistics.contributions import blocks_of
from ssl_vit.statistics.families import shared_spread
from ssl_vit.statistics.paired import SEEDS, Estimates, estimate_many

ALPHA = 0.05
"""Of any false word in a table: the best is told to be worse, or what is called settled costs more than is said."""
DRAWS = 3
"""Draws, and pre-training seeds, below which nothing is told."""
INDIFFERENT = 1.0
"""Points that nobody should pay for with a dearer way."""
CHANGES = 0.2
"""Chance that the draws still to come change an advice, below which they are not worth their time."""
_EFFORT = ("knn", "linear", "train")
_FOLDS = 4
_SHOWN = 0.5
"""Part of what a cheaper way may cost that it may cost in these draws; what it costs in truth may be more."""
_LEARNED, _LEAST = 1 / 4, 15.0
"""A training failed that is below this share of the way from guessing to the best draw, which is this far from it."""
_APART, _USUAL = 2.0, 5.0
"""And apart from all that learned: by so many of their standard deviations, which count as no less than so much."""

_stats = cast("Any", _untyped_stats)


class Way(NamedTuple):
    """What one could do with labels."""

    start: str
    """What weights begin with, as results name it: ``scratch``, ``mae``, ``pixels``; of several networks with its
    network, ``mae@cnn``; ``scratch+`` is the baseline at the FLOPs of pre-training and fine-tuning together."""
    use: str
    """``knn``, ``linear`` or ``train`` (fine-tuning, or training from scratch)."""


class Tried(NamedTuple):
    """What a way answered with one number of labels."""

    way: Way
    units: Float[np.ndarray, "R U"]
    """What every test image adds to the metric, by draw; larger is better."""
    draws: Int[np.ndarray, " R"]
    """Which draws of labels these are: the same number is the same labels for all ways."""
    seeds: Int[np.ndarray, " R"] | None = None
    """Of pre-training; None where none could have been another: nothing was pre-trained, or by somebody else."""
    cost: float = 0.0
    """Of pre-training, in any unit."""

    def at(self, which: Int[np.ndarray, " K"] | Bool[np.ndarray, " R"]) -> Tried:
        """With some of its draws alone, by their places."""
        seeds = None if self.seeds is None else self.seeds[which]
        return self._replace(units=self.units[which], draws=self.draws[which], seeds=seeds)

    @property
    def mean(self) -> float:
        """The metric, larger is better."""
        return float(self.units.mean())

    @property
    def effort(self) -> tuple[int, float]:
        """What the cheapest has least of."""
        return _EFFORT.index(self.way.use), self.cost


class Advice(NamedTuple):
    """What to use with one number of labels."""

    labels: int
    advised: Way
    """The cheapest of ``among`` that is at most half a point behind the best of these draws."""
    expected: float
    """The metric to expect of it, on images that did not choose it."""
    low: float | None
    """95 %; None where nothing measures chance (one draw)."""
    high: float | None
    among: tuple[Way, ...]
    """All that cannot be told from the best, the best first."""
    worse: tuple[Way, ...]
    """Told to be worse, the best first."""
    settled: bool
    """Whether the draws still to come would hardly change the advice: ``rivals`` is empty."""
    reason: str = ""
    """Why it is weak: ``too few to tell: 2 draws``; empty where it is not."""
    failed: tuple[tuple[Way, int, int], ...] = ()
    """Ways of which trainings failed: how many, of how many. They are in no mean."""
    proven: bool = False
    """Whether no other way is more than a point better, told as surely as all else."""
    rivals: tuple[Way, ...] = ()
    """Ways that more draws could bring into the advice."""


class Attribution(NamedTuple):
    """Best with pre-training less best without, with one number of labels: is it pre-training, not compute?"""

    labels: int
    gain: float | None
    """Positive is better with pre-training, whatever the metric; None where nothing is claimed."""
    low: float | None = None
    high: float | None = None
    p: float | None = None
    """Two-sided, of no difference; with several numbers of labels adjusted for them (Holm)."""
    refused: str = ""
    """Why nothing is claimed at this number of labels; empty where something is."""
    way: Way | None = None
    """The best with pre-training."""
    against: Way | None = None
    """The best without."""


def failures(values: Float[np.ndarray, " R"], guess: float | None) -> Bool[np.ndarray, " R"]:
    """Trainings that learned next to nothing where others of the same way did: no number is a mean of both.

    With few labels draws differ a lot, so a low value alone is no failure: it has to lie apart from the others.

    Args:
        values: The metric of every draw, larger is better.
        guess: What guessing gives; None where nobody knows, and nothing counts as failed.
    """
    none = np.zeros(len(values), dtype=np.bool_)
    if guess is None or (learned := float(values.max()) - guess) < _LEAST:
        return none
    for highest in sorted(values[values < guess + _LEARNED * learned], reverse=True):
        rest = values[values > highest]
        spread = float(rest.std(ddof=1)) if len(rest) > 1 else 0.0
        if rest.min() - highest > _APART * max(spread, _USUAL):
            return values <= highest
    return none


def advise(
    labels: int,
    tried: Sequence[Tried],
    groups: Int[np.ndarray, " U"] | None = None,
    *,
    guess: float | None = None,
    alpha: float = ALPHA,
    most: int = 0,
    indifferent: float = INDIFFERENT,
    span: float = 0.0,
) -> Advice:
    """What to use with one number of labels; there is an answer however little was tried.

    Args:
        labels: The number of labels.
        tried: What was tried with it: at least one way with at least one draw.
        groups: The group of every test image; None where each is its own.
        guess: What guessing gives, to find failed trainings; None where nobody knows.
        alpha: Of any false word here, all looks together: a table's, divided by its numbers of labels.
        most: Draws that a plan has, where it looks after each of them; 0 where no more will be made.
        indifferent: What a cheaper way may cost, in the metric's unit.
        span: How much a single unit can differ, as in ``interval``.
    """
    learned, failed = _without_failures(tried, guess)
    best, *others = sorted(learned, key=lambda one: (-one.mean, one.way))
    total = max(most, *(len(one.draws) for one in learned)) if most else 0
    behind = _told(best, others, groups, 0.0, alpha, total)
    among = [best, *(one for one, told in zip(others, behind, strict=True) if not told)]
    close = _SHOWN * indifferent
    advised = among[_cheapest(np.array([one.mean for one in among]), _ranks(among), close)]
    rest = [one for one in (best, *others) if one.way != advised.way]
    proven = bool(rest) and bool(_told(advised, rest, groups, -indifferent, alpha, total).all())
    reason = too_few([advised, best])
    rivals = (
        () if proven else _rivals(advised, best, [one for one in among if one.way != advised.way], most, indifferent)
    )
    expected, low, high = _expected(advised, among, groups, span, close)
    return Advice(
        labels, advised.way, expected, low, high, tuple(one.way for one in among),
        tuple(one.way for one, told in zip(others, behind, strict=True) if told), not reason and not rivals, reason,
        failed, proven, rivals,
    )  # fmt: skip


def attribute(
    labels: int,
    trained: Sequence[Tried],
    others: Sequence[Tried],
    groups: Int[np.ndarray, " U"] | None = None,
    *,
    guess: float | None = None,
    span: float = 0.0,
) -> Attribution:
    """How much better the best with pre-training is than the best without, over new seeds, draws and test images.

    Each side is chosen on other images and draws than it is judged on. Choices that differ from part to part are noise
    of which that mean's own spread shows too little. So the interval has the spread of the two ways that lead, which
    counts as no less than is usual of all pairs that were chosen anywhere.

    A side of several nearly equal ways loses by choosing on other images: what is best there is seldom best here. The
    two ways that lead do not lose so. Where the one says a gain and the other none, there is none: the interval goes
    around both differences, and p is that of the smaller one.

    Args:
        labels: The number of labels.
        trained: What was tried with pre-training, at least one way.
        others: The same without.
        groups: As in ``advise``.
        guess: As in ``advise``.
        span: As in ``advise``.
    """
    sides = [_without_failures(side, guess)[0] for side in (trained, others)]
    leading = [min(side, key=lambda one: (-one.mean, one.way)) for side in sides]
    draws: Int[np.ndarray, " d"] = np.intersect1d(leading[0].draws, leading[1].draws)
    way, against = (one.way for one in leading)
    reason = too_few(leading)
    if not reason and len(draws) < DRAWS:
        reason = f"too few to tell: {_draws(len(draws))} in common"
    if reason:
        return Attribution(labels, None, refused=reason, way=way, against=against)
    (ours, first), (theirs, second) = (_crossed(side, draws, groups, 0.0) for side in sides)
    pairs = [leading, *([one, other] for one in first for other in second if (one.way, other.way) != (way, against))]
    gaps = [gap for pair in pairs if len((gap := _less(*pair)).draws) >= DRAWS]
    found = shared_spread(_estimates(gaps, groups, span))
    gain, plain, margin = ours - theirs, float(found.estimate[0]), float(found.margin[0])
    if not margin:
        return Attribution(labels, None, refused="the difference is the same in every draw", way=way, against=against)
    low, high = min(gain, plain), max(gain, plain)
    smaller = min(max(low, 0.0), high)  # 0 between a gain and a loss
    p = float(found._replace(estimate=np.full_like(found.estimate, smaller)).p[0])
    return Attribution(labels, gain, low - margin, high + margin, p, way=way, against=against)


def spent(draws: int, most: int) -> float:
    """Share of the false words that the look after so many draws may say; those of all looks add up to 1.

    It goes by the draws that a comparison has, so what an earlier look told stays told where no more were made.

    Args:
        draws: That both sides have.
        most: Draws of a plan that looks after each; 0 where there is one look.
    """
    if most <= DRAWS:
        return 1.0
    return (DRAWS if draws <= DRAWS else 1) / most


def too_few(ways: Sequence[Tried]) -> str:
    """Why nothing can be told of these ways; empty where something can."""
    draws = min(len(one.draws) for one in ways)
    seeds = min((len(np.unique(one.seeds)) for one in ways if one.seeds is not None), default=SEEDS)
    few = [_draws(draws)] if draws < DRAWS else []
    few += [f"{seeds} pre-training seed{'s' * (seeds > 1)}"] if seeds < SEEDS else []
    return f"too few to tell: {' and '.join(few)}" if few else ""


def _draws(count: int) -> str:
    return f"{count} draw{'s' * (count != 1)}"


def _without_failures(
    tried: Sequence[Tried], guess: float | None
) -> tuple[list[Tried], tuple[tuple[Way, int, int], ...]]:
    """What learned, and of which ways how many trainings failed."""
    lost = [failures(one.units.mean(1), guess) for one in tried]
    pairs = list(zip(tried, lost, strict=True))
    return [one.at(~bad) for one, bad in pairs], tuple((one.way, int(b.sum()), len(b)) for one, b in pairs if b.any())


def _ranks(ways: Sequence[Tried]) -> Int[np.ndarray, " K"]:
    """The place of each, the cheapest first; ways of one effort share theirs."""
    order = sorted({one.effort for one in ways})
    return np.array([order.index(one.effort) for one in ways])


def _cheapest(means: Float[np.ndarray, " K"], ranks: Int[np.ndarray, " K"], indifferent: float) -> int:
    """Of those that are hardly behind the best, by place; of one effort the better one."""
    near = np.flatnonzero(means >= means.max() - indifferent)
    return int(near[np.lexsort((-means[near], ranks[near]))[0]])


def _told(
    one: Tried, others: Sequence[Tried], groups: Int[np.ndarray, " U"] | None, least: float, alpha: float,
    most: int,
) -> Bool[np.ndarray, " K"]:  # fmt: skip
    """Which of the others are behind the one by more than ``least``, adjusted for how many they are."""
    told, gaps = np.zeros(len(others), dtype=np.bool_), [_less(one, other) for other in others]
    known = [i for i, gap in enumerate(gaps) if len(gap.draws) >= DRAWS and not too_few([one, others[i]])]
    if known:
        level = np.array([alpha * spent(len(gaps[i].draws), most) / len(others) for i in known])
        found = shared_spread(_estimates([gaps[i] for i in known], groups))
        told[known] = found.beyond(found.estimate - least) < level
    return told


def _shared(one: Tried, other: Tried) -> Int[np.ndarray, " S"]:
    return np.intersect1d(one.draws, other.draws)


def _less(one: Tried, other: Tried) -> Tried:
    """The difference of two ways, on the draws that both have."""
    draws = _shared(one, other)
    gap = _on(one, draws).units - _on(other, draws).units
    return Tried(one.way, gap, draws, _seeds_of((one, other), draws))


def _on(one: Tried, draws: Int[np.ndarray, " S"]) -> Tried:
    order = np.argsort(one.draws)
    return one.at(order[np.searchsorted(one.draws, draws, sorter=order)])


def _seeds_of(ways: Sequence[Tried], draws: Int[np.ndarray, " S"]) -> Int[np.ndarray, " S"] | None:
    """Which pre-trainings each of these draws stands on; None where none could have been another."""
    used = [seeds for one in ways if (seeds := _on(one, draws).seeds) is not None]
    return np.unique(np.stack(used, axis=1), axis=0, return_inverse=True)[1] if used else None


def _estimates(ways: Sequence[Tried], groups: Int[np.ndarray, " U"] | None, span: float = 0.0) -> Estimates:
    """Of each, in their order; those of one design are made at once."""
    designs: dict[tuple[int, bytes], list[int]] = {}
    for k, one in enumerate(ways):
        designs.setdefault((len(one.draws), b"" if one.seeds is None else one.seeds.tobytes()), []).append(k)
    found = [
        estimate_many(np.stack([ways[k].units for k in some]), ways[some[0]].seeds, groups, span)
        for some in designs.values()
    ]
    order = np.argsort(np.concatenate(list(designs.values())))
    return Estimates(*(np.concatenate(parts)[order] for parts in zip(*found, strict=True)))


def _rivals(advised: Tried, best: Tried, others: Sequence[Tried], most: int, indifferent: float) -> tuple[Way, ...]:
    """Ways that the draws still to come, of a plan or as many as one likes, could bring into the advice.

    A cheaper way would have to come close to the best, another one to be ahead by more than what is indifferent. Where
    all together hardly would there are none.
    """
    chances: list[float] = []
    for one in others:
        draws = _shared(advised, one)
        if len(draws) < DRAWS:
            chances.append(1.0)
            continue
        rows = (_on(one, draws).units - _on(advised, draws).units).mean(1)
        cheaper = one.effort < advised.effort
        rise = (best.mean - _SHOWN * indifferent if cheaper else advised.mean + indifferent) - one.mean
        still = 1 / len(rows) - (1 / most if most > len(rows) else 0.0)
        spread = np.sqrt(rows.var(ddof=1) * still)
        chances.append(float(_stats.t.sf(rise / spread, len(rows) - 1)) if spread else float(rise < 0))
    if sum(chances) <= CHANGES:
        return ()
    return tuple(one.way for one, chance in zip(others, chances, strict=True) if chance > CHANGES / len(others))


def _expected(
    advised: Tried, among: Sequence[Tried], groups: Int[np.ndarray, " U"] | None, span: float, close: float
) -> tuple[float, float | None, float | None]:
    """The metric of what is chosen, on images and draws that did not choose it.

    Its interval is as wide as the advised way's own spread makes it, which counts as no less than the usual one of all
    that are among.
    """
    value, _ = _crossed(among, advised.draws, groups, close)
    known = [advised, *(one for one in among if one.way != advised.way and len(one.draws) > 1)]
    margin = float(shared_spread(_estimates(known, groups, span)).margin[0])
    return (value, None, None) if np.isnan(margin) or not margin else (value, value - margin, value + margin)


def _crossed(
    ways: Sequence[Tried], draws: Int[np.ndarray, " S"], groups: Int[np.ndarray, " U"] | None, indifferent: float
) -> tuple[float, list[Tried]]:
    """The metric of what is chosen for every draw and fold of the images, by the others; and what was chosen.

    Draws of the same pre-training do not choose for each other where there are several, and the only draw that there is
    chooses for itself.
    """
    images = ways[0].units.shape[1]
    folds, ranks = blocks_of(images, groups) % _FOLDS, _ranks(ways)
    folded = (folds[:, None] == np.unique(folds)).astype(np.float64)  # [U F]
    there = np.zeros((len(ways), len(draws)), dtype=np.bool_)
    seeds, sums = np.full(there.shape, np.nan), np.zeros((*there.shape, folded.shape[1]))
    for k, one in enumerate(ways):
        _, ours, theirs = np.intersect1d(draws, one.draws, return_indices=True)
        there[k, ours], sums[k, ours] = True, one.units[theirs] @ folded
        seeds[k, ours] = np.nan if one.seeds is None else one.seeds[theirs]
    sizes, value, chosen = folded.sum(0), 0.0, set[int]()
    for r, f in np.ndindex(sums.shape[1:]):
        rows = others = np.arange(len(draws)) != r
        rows = rows & ~(seeds == seeds[:, [r]]).any(0)
        rows = rows if rows.any() else others if others.any() else ~others
        columns = np.arange(len(sizes)) != f if len(sizes) > 1 else np.ones(1, dtype=np.bool_)
        weight = there[:, rows].sum(1) * sizes[columns].sum()
        means = np.full(len(ways), -np.inf)
        np.divide(sums[:, rows][:, :, columns].sum((1, 2)), weight, out=means, where=(weight > 0) & there[:, r])
        best = _cheapest(means, ranks, indifferent)
        value += float(sums[best, r, f])
        chosen.add(best)
    return value / (len(draws) * images), [ways[k] for k in sorted(chosen)]
