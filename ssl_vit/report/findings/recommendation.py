"""The two claims of a verdict in plain sentences: what to use with how many labels, and whether it is pre-training.

A recommendation is always given, however weak. An attribution is refused, at single numbers of labels, where the
baseline was not tuned or not trained at the FLOPs of pre-training, and of starts with which the contract was not kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from ssl_vit.configs.metrics import METRICS, Metric, shown
from ssl_vit.report.cells import enumerated, span
from ssl_vit.report.findings import leaking
from ssl_vit.report.findings.contract import baseline_of, broken, check, tuned_counts
from ssl_vit.report.findings.records import Score, Verdict
from ssl_vit.report.findings.tables import interval_of, method_name, way_of
from ssl_vit.report.look import PRETRAINED, kind_of
from ssl_vit.runs.identity import differences
from ssl_vit.statistics.advice import ALPHA, INDIFFERENT, Advice, Attribution, Tried, Way, advise, attribute, failures
from ssl_vit.statistics.families import holm

_SHARE = 0.01
"""What counts as a point where a metric is no percentage: a share of its bound (R2: 1), or of the best way's mean."""


class Recommendation(NamedTuple):
    """Both claims, as numbers and in words."""

    advice: tuple[Advice, ...]
    """By number of labels, ascending."""
    attributions: tuple[Attribution, ...]
    """The same numbers of labels."""
    sentences: tuple[str, ...]
    """The first line of report and terminal: "With 10 labels: MAE, linear probe (65 %, 61 to 70)." and so on."""
    pays: str
    """The sentence after them: "Pre-training pays only below about 20 labels."; empty where nothing is known."""
    refused: tuple[str, ...] = ()
    """Why it is not said whether pre-training pays, a sentence for every reason."""
    failed: tuple[str, ...] = ()
    """Trainings that failed."""


class Asked(NamedTuple):
    """What ``advise`` and ``attribute`` take of a verdict."""

    table: dict[int, list[Tried]]
    """By number of labels, ascending."""
    groups: Int[np.ndarray, " U"] | None
    guess: float | None
    indifferent: float
    most: int
    """Draws of a plan that looked after each of them; 0 where none did."""
    span: float
    """How much a single test image can differ; 0 where nobody knows."""


def recommend(verdict: Verdict) -> Recommendation:
    """What the numbers of a verdict advise, and what of it is due to pre-training."""
    asked, sign = asked_of(verdict), METRICS[verdict.about["metric"]].sign
    advice = [
        advise(labels, tried, asked.groups, guess=asked.guess, alpha=ALPHA / len(asked.table), most=asked.most,
               indifferent=asked.indifferent, span=asked.span)
        for labels, tried in asked.table.items()
    ]  # fmt: skip
    advice = [one if sign > 0 else _mirrored(one) for one in advice]
    learned = without_failed(verdict)
    advice = [_with_images(learned, one) for one in advice]
    attributions = _attributions(verdict, asked)
    pays = _pays(attributions, METRICS[verdict.about["metric"]], asked.indifferent)
    return Recommendation(
        tuple(advice), tuple(attributions), _sentences(verdict, advice), pays, _refused(attributions),
        _failed(verdict, advice),
    )  # fmt: skip


def asked_of(verdict: Verdict) -> Asked:
    """Every way at every number of labels as arrays; also of a verdict that is still being made."""
    metric = METRICS[verdict.about["metric"]]
    found: dict[int, dict[Way, list[Score]]] = {}
    for score in sorted(verdict.scores, key=lambda s: (s.labels, s.draw)):
        found.setdefault(score.labels, {}).setdefault(way_of(score), []).append(score)
    sizes = {None if s.units is None else len(s.units) for s in verdict.scores}
    by_image = len(sizes) == 1 and None not in sizes
    table = {
        labels: [_tried(verdict, way, scores, metric.sign, by_image) for way, scores in ways.items()]
        for labels, ways in found.items()
    }
    groups = verdict.clusters if by_image else None
    groups = groups if groups is not None and {len(groups)} == sizes else None
    indifferent = INDIFFERENT if metric.percent else _SHARE * _scale(table, metric)
    looks = int(verdict.told("plan").get("looks") or 0)
    span = float(np.ptp(metric.bounds)) if by_image and metric.per_image and np.isfinite(metric.bounds).all() else 0.0
    return Asked(table, groups, guess_of(verdict), indifferent, looks, span)


def _scale(table: dict[int, list[Tried]], metric: Metric) -> float:
    """What a metric without a unit of percent is measured by, which no bad way may change."""
    if np.isfinite(metric.bounds[1]):
        return float(metric.bounds[1])
    return min((abs(one.mean) for tried in table.values() for one in tried), default=1.0)


def guess_of(verdict: Verdict) -> float | None:
    """What guessing gives, in the leading metric; None where nobody knows."""
    labels = verdict.told("test").get("labels")
    if verdict.about.get("kind") != "class" or not labels:
        return None
    counts = Counter(labels)
    levels = {"top1": 100.0 * max(counts.values()) / len(labels), "balanced": 100.0 / len(counts), "auroc": 50.0}
    return levels.get(verdict.about["metric"])


def without_failed(verdict: Verdict) -> Verdict:
    """The verdict without trainings that failed: tables and charts of means are about the others."""
    sign, guess, lost = METRICS[verdict.about["metric"]].sign, guess_of(verdict), set[int]()
    groups: dict[tuple[Way, int], list[Score]] = {}
    for score in verdict.scores:
        groups.setdefault((way_of(score), score.labels), []).append(score)
    for scores in groups.values():
        failed = failures(sign * np.array([score.value for score in scores]), guess)
        lost |= {id(score) for score, no in zip(scores, failed, strict=True) if no}
    return replace(verdict, scores=tuple(score for score in verdict.scores if id(score) not in lost))


def _tried(verdict: Verdict, way: Way, scores: Sequence[Score], sign: float, by_image: bool) -> Tried:
    units = sign * np.array([s.units if by_image else [s.value] for s in scores], dtype=np.float64)
    made = [s.pretraining for s in scores if s.pretraining is not None and kind_of(s.start) != "public"]
    seeds = np.array(made, dtype=np.int64) if len(made) == len(scores) else None
    costs = [float(run.get("flops") or run.get("seconds") or 0.0) for run in verdict.runs(scores[0].start)]
    if scores[0].matched:
        costs = [float(s.cost.get("flops") or 0.0) for s in scores]
    draws = np.array([s.draw for s in scores], dtype=np.int64)
    return Tried(way, units, draws, seeds, float(np.mean(costs)) if costs else 0.0)


def _with_images(verdict: Verdict, one: Advice) -> Advice:
    """No narrower than the advised way's own interval over its test images, of which other ways may know nothing."""
    start, matched = one.advised.start.removesuffix("+"), one.advised.start.endswith("+")
    scores = verdict.of(start, one.advised.use, one.labels, matched=matched)
    if one.low is None or one.high is None or not scores or any(score.units is None for score in scores):
        return one
    own, (least, most) = interval_of(scores, verdict.clusters), METRICS[verdict.about["metric"]].bounds
    if own.low is None or own.high is None:
        return one
    low, high = one.expected - (own.estimate - own.low), one.expected + (own.high - own.estimate)
    return one._replace(low=max(least, min(one.low, low)), high=min(most, max(one.high, high)))


def _mirrored(one: Advice) -> Advice:
    """Of a metric of which less is better, as it is shown."""
    low, high = (None if end is None else -end for end in (one.high, one.low))
    return one._replace(expected=-one.expected, low=low, high=high)


def _attributions(verdict: Verdict, asked: Asked) -> list[Attribution]:
    items = check(verdict)
    general = broken(items)
    starts = [start for start in verdict.starts if kind_of(start) in PRETRAINED]
    why = {start: [*broken(items, start), *_other_rules(verdict, start)] for start in starts}
    fair = [start for start in starts if not why[start]]
    bases = {baseline_of(start) for start in starts}
    longer = {base: verdict.by_labels(base, "train", matched=True) for base in bases}
    tuned = {base: tuned_counts(verdict, base) for base in bases}
    found: list[Attribution] = []
    for labels, tried in asked.table.items():
        known = [one for one in tried if one.way.start in fair]
        chosen = [one for one in known if labels in tuned[baseline_of(one.way.start)]]
        trained = [one for one in chosen if labels in longer[baseline_of(one.way.start)]]
        others = [one for one in tried if kind_of(one.way.start.removesuffix("+")) not in PRETRAINED]
        refused = list(general)
        if not refused and not known:
            refused = [reason for reasons in why.values() for reason in reasons] or ["nothing was pre-trained"]
        elif not refused and not others:
            refused = ["there is nothing without pre-training"]
        elif not refused and not chosen:
            refused = ["the baseline was not tuned"]
        elif not refused and not trained:
            refused = ["the baseline was not trained at the FLOPs of pre-training and fine-tuning"]
        if refused:
            found.append(Attribution(labels, None, refused="; ".join(dict.fromkeys(refused))))
            continue
        one = attribute(labels, trained, others, asked.groups, guess=asked.guess, span=asked.span)
        if not one.refused and one.way is not None:
            leak = leaking.reason(verdict, one.way.start, one.low, one.high)
            one = one._replace(gain=None, low=None, high=None, p=None, refused=leak) if leak else one
        found.append(one)
    return [one._replace(p=p) for one, p in zip(found, holm([one.p for one in found]), strict=True)]


def _other_rules(verdict: Verdict, start: str) -> list[str]:
    """That a start was trained by other rules than the baseline, in words."""
    theirs = [score.result for score in verdict.trained(baseline_of(start))][:1]
    for first, other in ((first, score.result) for first in theirs for score in verdict.trained(start)):
        if other.protocol_hash != first.protocol_hash:
            fields = differences(first.protocol, other.protocol)
            return [
                f"the protocols of {verdict.name(start)} fine-tuning and of the labelled baseline differ ({fields})"
            ]
    return []


def _sentences(verdict: Verdict, advice: Sequence[Advice]) -> tuple[str, ...]:
    """A sentence for every stretch of numbers of labels with the same advice."""
    stretches = [list(some) for _, some in groupby(advice, key=lambda one: one.advised)]
    last = advice[-1].labels if advice else 0
    return tuple(
        f"{_with(stretch, last, single=len(stretches) == 1)}: {_way(verdict, stretch[0].advised)} "
        f"({_expected(verdict, stretch)})."
        for stretch in stretches
    )


def _with(stretch: Sequence[Advice], last: int, *, single: bool) -> str:
    least, most = stretch[0].labels, stretch[-1].labels
    if least == most:
        return f"With {least:,} label{'s' * (least > 1)}"
    return f"With {least:,} or more labels" if most == last and not single else f"With {least:,} to {most:,} labels"


def _expected(verdict: Verdict, stretch: Sequence[Advice]) -> str:
    """What to expect at both ends of a stretch."""
    metric = METRICS[verdict.about["metric"]]
    unit, ends = " %" if metric.percent else "", [stretch[0], *stretch[-1:][: len(stretch) - 1]]

    def words(one: Advice) -> str:
        own = span(metric.name, one.low, one.high) or "without an interval"
        return f"{shown(metric.name, one.expected)}{unit}{f' with {one.labels:,}' if len(ends) > 1 else ''}, {own}"

    said = "; ".join(map(words, ends))
    return said if metric.name == "top1" else f"{metric.words} {said}"


def _way(verdict: Verdict, way: Way) -> str:
    name = method_name(verdict, way)
    return "training from scratch" if name == "from scratch" else name


def _pays(found: Sequence[Attribution], metric: Metric, indifferent: float) -> str:
    """Where pre-training pays, of the numbers of labels at which that may be said."""
    judged = [one for one in found if not one.refused and one.gain is not None and one.p is not None]
    if not judged:
        return ""
    pays = [one.labels for one in judged if (one.p or 0) < 0.05 and (one.gain or 0) > 0]
    harms = [one.labels for one in judged if (one.p or 0) < 0.05 and (one.gain or 0) < 0]
    rest = [one.labels for one in judged if one.labels not in pays]
    whole = len(judged) == len(found)
    where = "" if whole else " of those at which this may be said"
    does = f"costs {metric.words}" if metric.larger_is_better else f"makes the {metric.words} larger"
    loss = f"; with {_numbers(harms)} it {does}" if harms else ""
    if not pays:
        return f"No gain from pre-training was found with any number of labels{where}{loss}."
    if not rest:
        if whole:
            return "Pre-training pays with every number of labels."
        return f"Pre-training pays with {_numbers(pays)} labels; of other numbers nothing can be said."
    if max(pays) < min(rest) and whole:
        sure = all((one.gain or 0) <= indifferent for one in judged if one.labels == min(rest))
        words = "Pre-training pays only" if sure else "Pre-training pays clearly only"
        return f"{words} below about {min(rest):,} labels{loss}."
    unclear = [count for count in rest if count not in harms]
    clear = f", and not clearly with {_numbers(unclear)}" if unclear else ""
    return f"Pre-training pays with {_numbers(pays)} labels{clear}{loss}."


def _numbers(counts: Sequence[int]) -> str:
    return enumerated([f"{count:,}" for count in counts])


def _failed(verdict: Verdict, advice: Sequence[Advice]) -> tuple[str, ...]:
    return tuple(
        f"With {one.labels:,} labels, {failed} of {made} trainings failed ({method_name(verdict, way)}): "
        f"{'they learned next to nothing, and are' if failed > 1 else 'it learned next to nothing, and is'} in no mean."
        for one in advice for way, failed, made in one.failed
    )  # fmt: skip


def _refused(found: Sequence[Attribution]) -> tuple[str, ...]:
    refused: dict[str, list[int]] = {}
    for one in found:
        if one.refused:
            refused.setdefault(one.refused, []).append(one.labels)
    return tuple(
        f"Whether pre-training pays{'' if len(counts) == len(found) else f' with {_numbers(counts)} labels'} is not "
        f"said: {reason.rstrip('.')}."
        for reason, counts in refused.items()
    )
