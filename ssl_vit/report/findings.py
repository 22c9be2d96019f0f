"""What a verdict says, in plain words; which comparisons are made stands in ``ssl_vit.report.comparisons``.

Nothing is said without its interval, a gain or a loss only where Holm's adjusted p-value is below 0.05. Where the
fair-baseline contract was broken or the two sides followed different protocols, no verdict is given at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ssl_vit.report.comparisons import (
    BASELINE,
    PRETRAINED,
    UNTRAINED,
    Comparisons,
    Difference,
    Saving,
    compare,
    difference_at,
    oriented,
)
from ssl_vit.report.records import Verdict
from ssl_vit.results import LABELS, shown

_METRICS = {
    "top1": "accuracy", "balanced": "balanced accuracy", "auroc": "AUROC", "macro_f1": "macro-F1",
    "average_precision": "mean average precision",     "mae": "mean absolute error", "r2": "R2",
}  # fmt: skip
_USES = {"train": "fine-tuning", "linear": "linear probe", "knn": "k-NN"}


@dataclass(frozen=True)
class Findings:
    """Numbers and sentences of a verdict."""

    primary: tuple[Difference, ...]
    """Every pre-trained start against the labelled baseline, over the whole curve."""
    table: tuple[Difference, ...]
    """Everything against the labelled baseline, at every number of labels."""
    secondary: tuple[Difference, ...]
    savings: tuple[Saving, ...]
    headline: str
    """What stands at the top: a sentence for each pre-trained start."""
    more: tuple[str, ...]
    refused: tuple[str, ...]
    """Why there is no verdict; empty where there is one."""


def find(verdict: Verdict, broken: Sequence[str] = ()) -> Findings:
    """Compares, and says what was found.

    Args:
        verdict: All numbers.
        broken: What of the fair-baseline contract was not kept, a sentence each.
    """
    found = compare(verdict)
    words = _Words(verdict, found)
    refused = list(broken)
    sentences: list[str] = []
    observed: list[str] = []
    more: list[str] = []
    for one in found.primary:
        reasons = [*broken, *words.protocols(one)]
        refused += [reason for reason in reasons if reason not in refused]
        (observed if reasons else sentences).append(words.observed(one) if reasons else words.verdict(one))
        more += [] if reasons else words.details(one)
    if not found.primary:
        refused.append("there is no pre-trained network and labelled baseline with draws of labels in common")
    if refused:
        only = f" Observed only: {'; '.join(observed)}." if observed else ""
        sentences.append(f"No verdict is given{words.about(observed)}: {'; '.join(_bare(r) for r in refused)}.{only}")
    if verdict.about.get("transductive"):
        sentences.append(
            "Pre-training saw the test images, without their labels (transductive): this says nothing about images "
            "that it has not seen."
        )
    more += words.general()
    return Findings(*found, headline=" ".join(sentences), more=tuple(more), refused=tuple(refused))


class _Words:
    """Sentences about one verdict."""

    def __init__(self, verdict: Verdict, found: Comparisons) -> None:
        self.all, self.found = verdict, found
        self.metric: str = verdict.about["metric"]
        self.whole: int = max(verdict.about["labels"])

    def verdict(self, one: Difference) -> str:
        """The sentence at the top."""
        who, at_all = self.who(one.start), self.at(one, self.whole)
        saved = next((s for s in self.savings(one) if s.labels == self.whole), None)
        if one.interval.low is None:
            return (
                f"No verdict on {self.what(one.start)}: observed {self.gap(one)} against the labelled baseline "
                f"{self.span(one)}{self.condition(one)}. {one.interval.note}"
            )
        if one.sign > 0 and saved and saved.needed and saved.high is not None and saved.high < saved.labels:
            return f"{who} reaches {self.level(saved)} {self.share(saved)}{self.condition(one)}."
        if one.sign:
            verb = "gains on" if one.sign > 0 else "loses against"
            sentence = f"{who} {verb} the labelled baseline: {self.gap(one)} {self.span(one)}"
            if at_all and len(self.counts(one)) > 1:
                sentence += f"; {self.found_at(at_all)}"
            return f"{sentence}{self.condition(one)}."
        doubt = ""
        if one.interval.p is not None and one.interval.p < 0.05:
            doubt = f", not clear after Holm's adjustment for {len(self.found.primary)} comparisons"
        clear = [self.found_at(d) for d in self.curve(one) if d.sign]
        but = f"; but {'; '.join(clear)}" if clear else ""
        return (
            f"No gain from {self.what(one.start)} was found: {self.gap(one)} {self.span(one)}{doubt}{but}"
            f"{self.condition(one)}."
        )

    def details(self, one: Difference) -> list[str]:
        """What stands behind the sentence at the top."""
        who, lines = self.who(one.start), list[str]()
        curve = self.curve(one)
        if one.interval.low is not None:
            lines.append(f"{who}, {self.use(one)} against the labelled baseline {self.span(one)}: {self.gap(one)}.")
            said = [
                f"{words} with {_listed([f'{d.labels:,}' for d in curve if d.sign == sign])} labels"
                for sign, words in ((1, "a gain"), (-1, "a loss"), (0, "neither"))
                if any(d.sign == sign for d in curve)
            ]
            if said:
                lines.append(
                    f"{who}, by number of labels: {'; '.join(said)} (p below 0.05 after Holm's adjustment for "
                    f"{len(self.found.table)} comparisons)."
                )
        for saved in sorted(self.savings(one), key=lambda s: -s.labels):
            if saved.labels == self.whole or (saved.low is not None and saved.high is not None):
                verb = "does not reach" if saved.needed is None else "reaches"
                lines.append(f"{who} {verb} {self.level(saved)} {self.share(saved)}.")
        if one.matched:
            counts = _listed([f"{n:,}" for n in one.matched])
            lines.append(
                f"{who}: with {counts} labels the baseline is the one trained at the FLOPs of pre-training and "
                "fine-tuning together, because it was the better of the two; choosing so favours the baseline."
            )
        return lines

    def general(self) -> list[str]:
        """What is not about one pre-trained start."""
        lines = self.beaten()
        for d in self.found.secondary:
            if d.start == "cnn":
                name = self.name(d.start)
                lines.append(
                    f"{name[0].upper() + name[1:]} against the labelled baseline {self.span(d)}: {self.gap(d)}."
                )
        if oriented(self.metric) < 0:
            lines.append(f"Differences are turned so that positive is better: a lower {_METRICS[self.metric]}.")
        return lines

    def beaten(self) -> list[str]:
        """Where pixels or random weights are better than every use of a pre-trained network."""
        lines: list[str] = []
        better = oriented(self.metric)
        for count in self.all.about["labels"]:
            means: dict[tuple[str, str], float] = {}
            for start, use in dict.fromkeys((s.start, s.use) for s in self.all.scores):
                values = [s.value for s in self.all.of(start, use, count)]
                if values and start in (*PRETRAINED, *UNTRAINED):
                    means[start, use] = better * sum(values) / len(values)
            own, plain = ({k: v for k, v in means.items() if k[0] in group} for group in (PRETRAINED, UNTRAINED))
            if not own or not plain or max(plain.values()) <= max(own.values()):
                continue
            one, other = max(plain, key=plain.__getitem__), max(own, key=own.__getitem__)
            gap = difference_at(self.all, one, other, count)
            if gap is not None:
                what = {"pixels": "raw pixels", "random": "random weights"}[one[0]]
                lines.append(
                    f"With {count:,} labels {what} ({_USES[one[1]]}) score above every use of pre-trained weights: "
                    f"{self.gap(gap)} against the best of them, {self.name(other[0])} ({_USES[other[1]]})."
                )
        return lines

    def protocols(self, one: Difference) -> list[str]:
        """Whether the two sides of a comparison followed the same rules of training."""
        if one.use != "train":
            return []
        sides = [
            [*self.all.of(start, "train"), *self.all.of(start, "train", matched=True)]
            for start in (one.start, BASELINE)
        ]
        if len({score.result.protocol_hash for side in sides for score in side}) < 2:
            return []
        return [f"the protocols of {self.name(one.start)} fine-tuning and of the labelled baseline differ"]

    def about(self, observed: Sequence[str]) -> str:
        """Of whom there is no verdict, where there is one of others."""
        if not observed or len(observed) == len(self.found.primary):
            return ""
        return f" on {_listed([self.what(d.start) for d in self.found.primary if self.protocols(d)])}"

    def observed(self, one: Difference) -> str:
        """A difference that nothing follows from."""
        return (
            f"{self.what(one.start)}, {self.use(one)} against the labelled baseline {self.span(one)}: {self.gap(one)}"
        )

    def name(self, start: str) -> str:
        """What a start is called."""
        return str(self.all.about["methods"].get(start, {}).get("name", start))

    def what(self, start: str) -> str:
        """What pre-training is judged."""
        return f"starting from {self.name(start)}" if start == "public" else f"{self.name(start)} pre-training"

    def who(self, start: str) -> str:
        """As ``what``, at the beginning of a sentence."""
        words = self.what(start)
        return words[0].upper() + words[1:]

    def use(self, one: Difference) -> str:
        """How it uses labels."""
        return _USES[one.use]

    def curve(self, one: Difference) -> list[Difference]:
        """The table's rows about a start's primary use."""
        return [d for d in self.found.table if (d.start, d.use) == (one.start, one.use)]

    def counts(self, one: Difference) -> list[int]:
        """Numbers of labels of a comparison."""
        return [d.labels for d in self.curve(one) if d.labels is not None]

    def at(self, one: Difference, labels: int) -> Difference | None:
        """A start's primary use at one number of labels."""
        return next((d for d in self.curve(one) if d.labels == labels), None)

    def savings(self, one: Difference) -> list[Saving]:
        """Labels that a start's primary use needs for what the baseline reaches."""
        return [s for s in self.found.savings if (s.start, s.use) == (one.start, one.use)]

    def span(self, one: Difference) -> str:
        """Over which numbers of labels."""
        counts = self.counts(one)
        if len(counts) == 1:
            return f"with {counts[0]:,} labels"
        return f"on average over {min(counts):,} to {max(counts):,} labels"

    def gap(self, one: Difference) -> str:
        """A difference with its interval."""
        i = one.interval
        text = f"difference {self.signed(i.estimate)}{self.unit}"
        if i.low is None or i.high is None:
            return f"{text} (no interval)"
        beside = " without chance in the choice of test images" if "test images" in i.note else ""
        return f"{text} (95 % interval{beside} {self.signed(i.low)} to {self.signed(i.high)})"

    def found_at(self, one: Difference) -> str:
        """What was found at one number of labels."""
        words = {1: "a gain", -1: "a loss", 0: "no clear difference"}[one.sign]
        labels = f"all {one.labels:,}" if one.labels == self.whole else f"{one.labels:,}"
        return f"{words} with {labels} labels, {self.gap(one)}"

    def level(self, saved: Saving) -> str:
        """What is to be reached."""
        value = shown(self.metric, saved.level) + (" %" if self.unit else "")
        labels = f"all {saved.labels:,}" if saved.labels == self.whole else f"{saved.labels:,}"
        return f"the labelled baseline's {_METRICS[self.metric]} ({value} with {labels} labels)"

    def share(self, saved: Saving) -> str:
        """With which share of all labels it is reached."""
        if saved.needed is None or saved.share is None:
            text = "with any number of labels tried"
        else:
            text = f"with {_percent(saved.share)} % of the labels{' or fewer' if saved.at_once else ''}"
        low, high = saved.share_low, saved.share_high
        if saved.note:
            return f"{text} (no interval: {_bare(saved.note[0].lower() + saved.note[1:])})"
        if low is not None and high is not None:
            return f"{text} (95 % interval {_percent(low)}-{_percent(high)} %)"
        if high is not None:
            return f"{text} (95 % interval: {_percent(high)} % at most)"
        if low is not None:
            return f"{text} (95 % interval: {_percent(low)} % or more, without an upper end)"
        return f"{text} (95 % interval: without ends, from fewer labels than were tried to more)"

    def condition(self, one: Difference) -> str:
        """On what a sentence stands where there are too few pre-training seeds."""
        if not one.conditional:
            return ""
        return ", conditional on " + ("this one backbone" if one.seeds == 1 else f"these {one.seeds} backbones")

    @property
    def unit(self) -> str:
        """Of a difference."""
        return " points" if LABELS[self.metric].endswith("%") else ""

    def signed(self, value: float) -> str:
        """A difference as a number with its sign; what rounds to zero has none."""
        size = shown(self.metric, abs(value))
        return size if float(size) == 0 else f"{'+' if value > 0 else '-'}{size}"


def _percent(share: float) -> str:
    return f"{share:.0f}" if share >= 9.5 else f"{share:.2g}"


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def _bare(sentence: str) -> str:
    """Without its full stop, for the middle of a sentence."""
    return sentence.rstrip(".")
