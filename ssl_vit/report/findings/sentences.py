"""Sentences of a verdict: differences with their intervals, labels saved, and on what they stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ssl_vit.configs.metrics import METRICS, shown
from ssl_vit.methods.starts import BASELINE, pretrained, titles, untrained
from ssl_vit.report.findings.comparisons import USES, Comparisons, Difference, Saving, difference_at, fair_counts
from ssl_vit.report.findings.leaking import reason
from ssl_vit.report.findings.records import Verdict
from ssl_vit.runs.identity import differences

_USES = USES | {"train": "fine-tuning"}


class Sentences:
    """What is said about one verdict; every method words one thing."""

    def __init__(self, verdict: Verdict, found: Comparisons) -> None:
        """Of all numbers, and what was compared of them."""
        self.all, self.found = verdict, found
        self.metric = METRICS[verdict.about["metric"]]
        self.whole: int = max(verdict.about["labels"])
        self.unit = " points" if self.metric.percent else ""
        self.word = f"{'difference' if self.metric.larger_is_better else 'advantage'} in {self.metric.words}"

    def verdict(self, one: Difference) -> str:
        """The sentence at the top."""
        what, condition = self.what(one), self._condition(one)
        gap = f"{self.word} {self._gap(one)} against the labelled baseline {self._span(one)}"
        if one.interval.low is None:
            return f"No verdict on {what}: observed {gap}{condition}. {one.interval.note}"
        curve = [d for d in self._curve(one) if d.labels in one.over]
        otherwise = "; ".join(self._found_at(d) for d in curve if d.sign not in (0, one.sign))
        ending = f"{f'; but {otherwise}' if otherwise else ''}{condition}."
        saved = next((s for s in self._savings(one) if s.labels == self.whole), None)
        if one.sign > 0 and saved and saved.needed and saved.high is not None and saved.high < saved.labels:
            return f"{upper(what)} {self._saving(saved)}{ending}"
        if one.sign:
            alike = [self._found_at(d) for d in curve if d.labels == self.whole and d.sign in (0, one.sign)]
            at_all = f"; {alike[0]}" if alike and len(curve) > 1 else ""
            return f"{upper(what)} {'gains' if one.sign > 0 else 'loses'}: {gap}{at_all}{ending}"
        doubt = f", {_unclear(self.found.primary)}" if one.unclear else ""
        return f"No gain from {what} was found: {gap}{doubt}{ending}"

    def details(self, one: Difference) -> list[str]:
        """What stands behind the sentence at the top."""
        if one.interval.low is None:
            return []
        who, curve = upper(self.what(one)), self._curve(one)
        lines = [f"{upper(self.observed(one))}."]
        fair, seen = dict[str, list[int]](), dict[str, list[int]]()
        for d in sorted(curve, key=lambda d: (not d.sign, d.unclear, -d.sign)):
            group, kind = (fair, _kind(d)) if d.labels in one.over else (seen, _kind(d, "positive", "negative"))
            group.setdefault(kind + " that is not clear" * d.unclear, []).append(d.labels or 0)
        listed, also = (
            "; ".join(f"{kind} with {self._numbers(counts)} labels" for kind, counts in group.items())
            for group in (fair, seen)
        )
        listed += f"; observed only: {also}" if also else ""
        if len(curve) > 1:
            count = len(self.found.table)
            lines.append(f"{who} by number of labels, after Holm's adjustment for {count} comparisons: {listed}.")
        for saved in sorted(self._savings(one), key=lambda s: -s.labels):
            ends = [end is not None for end in (saved.low, saved.high)]
            if (saved.labels == self.whole and (any(ends) or saved.needed is None)) or all(ends):
                subject = who if saved.labels in one.over else f"Observed only: {self.what(one)}"
                lines.append(f"{subject} {self._saving(saved)}.")
        return lines

    def general(self) -> list[str]:
        """What is not about one pre-trained start."""
        lines = self._beaten() + [f"{upper(self.observed(d))}." for d in self.found.secondary if d.start == "cnn"]
        matched = sorted({count for d in self.found.primary for count in d.matched})
        if matched:
            lines.append(
                f"With {self._numbers(matched)} labels the baseline is the one trained at the FLOPs of pre-training "
                "and fine-tuning together, because it was the better of the two; choosing so favours the baseline."
            )
        lines.append(
            "Intervals are of one comparison each; a gain or a loss is one that is clear after Holm's adjustment, for "
            "which a spread between draws counts as no less than the average one with as many labels."
        )
        return lines

    def _beaten(self) -> list[str]:
        """Where pixels or random weights are better than every use of a pre-trained network."""
        above: dict[tuple[str, str], list[tuple[int, str]]] = {}
        methods = dict.fromkeys((s.start, s.use) for s in self.all.scores)
        for count in self.all.about["labels"]:
            scores = {method: self.all.of(*method, count) for method in methods}
            means = {k: self.metric.sign * sum(s.value for s in v) / len(v) for k, v in scores.items() if v}
            own, plain = ({k: v for k, v in means.items() if k[0] in group} for group in (pretrained(), untrained()))
            if not own or not plain or max(plain.values()) <= max(own.values()):
                continue
            one, other = max(plain, key=plain.__getitem__), max(own, key=own.__getitem__)
            gap = difference_at(self.all, one, other, count)
            if gap is not None:
                found = f"{self._gap(gap)} against {self.all.name(other[0])} ({_USES[other[1]]})"
                above.setdefault(one, []).append((count, found))
        return [
            f"With {self._numbers(count for count, _ in found)} labels {titles()[start]} ({_USES[use]}) are on average "
            f"above every use of pre-trained weights: {self.word} to the best of them "
            f"{'; '.join(gap if len(found) == 1 else f'with {count:,} labels {gap}' for count, gap in found)}."
            for (start, use), found in above.items()
        ]

    def cheaper(self) -> list[str]:
        """Where features without any training do clearly better than both sides of what is judged."""
        better = self.metric.sign
        for one in self.found.primary:
            last = [d for d in self.found.table if d.labels == max(one.over)]
            own = next(d for d in last if (d.start, d.use) == (one.start, one.use))
            level = max(better * own.value, better * own.against_value)
            above = [d for d in last if d.start in untrained() and d.sign > 0 and better * d.value > level]
            if above:
                d = max(above, key=lambda d: better * d.value)
                return [
                    f"Without any training {titles()[d.start]} ({_USES[d.use]}) do better than both: {self.word} "
                    f"{self._gap(d)} against the labelled baseline {self._span(d)}."
                ]
        return []

    def reasons(self, one: Difference) -> list[str]:
        """Why no verdict is given on one start although the contract was kept."""
        name, found = self.all.name(one.start), list[str]()
        if one.use == "train":  # whether both sides followed the same rules of training
            first, *others = (score.result for start in (one.start, BASELINE) for score in self.all.trained(start))
            other = next((result for result in others if result.protocol_hash != first.protocol_hash), None)
            if other is not None:
                fields = differences(first.protocol, other.protocol)
                found.append(f"the protocols of {name} fine-tuning and of the labelled baseline differ ({fields})")
        leak = reason(self.all, one, [d for d in self._curve(one, every_use=True) if d.labels in one.over])
        found += [leak] if leak else []
        if not set(one.over) <= set(fair_counts(self.all)):
            found.append(f"{name} has no result where the baseline had the FLOPs of pre-training")
        return found

    def elsewhere(self, one: Difference) -> list[str]:
        """What was seen with numbers of labels on which no verdict stands."""
        return [
            f"{upper(self._span(d))}, where the baseline was not trained at the FLOPs of pre-training and fine-tuning, "
            f"no verdict is given on {self.what(one)}; observed: {self.word} {self._gap(d)}{self._condition(d)}."
            for d in self.found.observed if (d.start, d.use) == (one.start, one.use)
        ]  # fmt: skip

    def nothing(self) -> str:
        """Why there is no comparison to give a verdict on."""
        variants = [s for s in self.all.starts if s not in pretrained() and s.partition(" (")[0] in pretrained()]
        if variants:
            names = enumerated([self.all.name(start) for start in variants])
            return f"several variants are given, {names}, and a verdict is on one of each: name the runs of one"
        return "there is no pre-trained network and labelled baseline with draws of labels in common"

    def observed(self, one: Difference) -> str:
        """A difference that nothing follows from."""
        use = ", fine-tuning," if one.use == "train" and one.start != "cnn" else ""
        against = f"against the labelled baseline {self._span(one)}"
        return f"{self.what(one)}{use} {against}: {self.word} {self._gap(one)}{self._condition(one)}"

    def what(self, one: Difference) -> str:
        """What is judged."""
        before, behind = {"public": ("starting from ", ""), "cnn": ("", "")}.get(one.start, ("", " pre-training"))
        use = "" if one.use == "train" else f" ({_USES[one.use]})"
        return f"{before}{self.all.name(one.start)}{behind}{use}"

    def _curve(self, one: Difference, *, every_use: bool = False) -> list[Difference]:
        return [d for d in self.found.table if d.start == one.start and (every_use or d.use == one.use)]

    def _savings(self, one: Difference) -> list[Saving]:
        """Labels that a start's primary use needs for what the baseline reaches."""
        return [s for s in self.found.savings if (s.start, s.use) == (one.start, one.use)]

    def _span(self, one: Difference) -> str:
        """Over which numbers of labels."""
        if len(one.over) == 1:
            return f"with {self._labels(one.over[0])}"
        between = [d.labels for d in self._curve(one) if min(one.over) <= (d.labels or 0) <= max(one.over)]
        if len(between) > len(one.over):
            return f"on average over {self._numbers(one.over)} labels"
        return f"on average over {min(one.over):,} to {max(one.over):,} labels"

    def _gap(self, one: Difference) -> str:
        i = one.interval
        text = f"{self._signed(i.estimate)}{self.unit}"
        if i.low is None or i.high is None:
            return f"{text} (no interval)"
        beside = "" if len(i.shares) > 1 else " without chance in the choice of test images"
        return f"{text} (95 % interval{beside} {self._signed(i.low)} to {self._signed(i.high)})"

    def _found_at(self, one: Difference) -> str:
        doubt = f", {_unclear(self.found.table)}" if one.unclear else ""
        return f"{_kind(one)} with {self._labels(one.labels or 0)}{doubt}: {self._gap(one)}"

    def _labels(self, count: int) -> str:
        every = count == self.whole and len(self.all.about["labels"]) > 1
        return f"{'all ' if every else ''}{count:,} labels"

    def _numbers(self, counts: Iterable[int]) -> str:
        return enumerated([f"{count:,}" for count in counts])

    def _saving(self, saved: Saving) -> str:
        """Whether and with how many labels the baseline's level is reached: in percent of all where it has all."""
        most = max(score.labels for score in self.all.of(saved.start, saved.use))
        value, ends = shown(self.metric.name, saved.level) + (" %" if self.unit else ""), self._ends(saved, most)
        level = f"the labelled baseline's {self.metric.words} ({value} with {self._labels(saved.labels)})"
        if saved.needed is None:
            return f"does not reach {level}: even {self._labels(most)} are not enough{ends}"
        needed = f"{saved.needed:,.0f} labels"
        if saved.needed > saved.labels:
            return (
                f"needs {needed}{ends} for the {self.metric.words} that the labelled baseline reaches with "
                f"{saved.labels:,} ({value})"
            )
        if saved.labels == self.whole:
            needed = f"{_percent(saved.shares[0] or 0)} % of the labels"
        return f"reaches {level} with {needed}{' or fewer' if saved.at_once else ''}{ends}"

    def _ends(self, saved: Saving, most: int) -> str:
        """The confidence set of the labels needed, in brackets; the method was given so many at most."""
        if saved.note:
            return " (no interval)"
        if saved.low == most:
            return " (95 % interval: more than that)"
        low, high = (None if n is None else f"{n:,.0f}" for n in (saved.low, saved.high))
        unit = ""
        if saved.labels == self.whole:
            low, high = (None if s is None else _percent(s) for s in saved.shares[1:])
            unit = " %"
        if low is not None and high is not None:
            return f" (95 % interval {low}-{high}{unit})"
        if high is not None:
            return f" (95 % interval: {high}{unit} at most)"
        if low is not None:
            return f" (95 % interval: {low}{unit} or more, without an upper end)"
        return " (95 % interval: without ends, beyond the fewest and the most labels tried)"

    def _condition(self, one: Difference) -> str:
        """On what a sentence stands where there are too few pre-training seeds."""
        backbones = "this one backbone" if one.seeds == 1 else f"these {one.seeds} backbones"
        return f", conditional on {backbones}" if one.conditional else ""

    def _signed(self, value: float) -> str:
        """A difference as a number with its sign; what rounds to zero has none."""
        size = shown(self.metric.name, abs(value))
        return size if float(size) == 0 else f"{'+' if value > 0 else '-'}{size}"


def _kind(one: Difference, gain: str = "", loss: str = "") -> str:
    """What was found, in a few words; where no verdict stands on it, it is a difference of a sign."""
    if not one.sign and not one.unclear:
        return "no clear difference"
    word = gain if one.interval.estimate > 0 else loss
    return f"a {word} difference" if word else "a gain" if one.interval.estimate > 0 else "a loss"


def _unclear(family: Sequence[Difference]) -> str:
    return f"not clear after Holm's adjustment for {len(family)} comparisons"


def _percent(share: float) -> str:
    if 99 < share < 100:  # not all of them
        return f"{min(share, 99.9):.1f}"
    return f"{share:.0f}" if share >= 9.5 else f"{share:#.2g}"


def enumerated(words: Sequence[str]) -> str:
    """Some words with commas, and an "and" before the last."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def upper(sentence: str) -> str:
    """With a capital letter."""
    return sentence[:1].upper() + sentence[1:]
