"""Sentences of a verdict: differences with their intervals, labels saved, and on what they stand."""

from __future__ import annotations

from collections.abc import Sequence

from ssl_vit.configs.metrics import METRICS, shown
from ssl_vit.methods.starts import BASELINE, pretrained, titles, untrained
from ssl_vit.report.findings.comparisons import Comparisons, Difference, Saving, difference_at, fair_counts
from ssl_vit.report.findings.leaking import reason
from ssl_vit.report.findings.records import Verdict
from ssl_vit.runs.identity import differences

_USES = {"train": "fine-tuning", "linear": "linear probe", "knn": "k-NN"}


class Sentences:
    """What is said about one verdict; every method words one thing."""

    def __init__(self, verdict: Verdict, found: Comparisons) -> None:
        """Words what was found.

        Args:
            verdict: All numbers.
            found: What was compared.
        """
        self.all, self.found = verdict, found
        self.metric: str = verdict.about["metric"]
        self.whole: int = max(verdict.about["labels"])

    def verdict(self, one: Difference) -> str:
        """The sentence at the top."""
        what, condition = self.what(one), self.condition(one)
        gap = f"{self.word} {self.gap(one)} against the labelled baseline {self.span(one)}"
        if one.interval.low is None:
            return f"No verdict on {what}: observed {gap}{condition}. {one.interval.note}"
        curve = [d for d in self.curve(one) if d.labels in one.over]
        otherwise = "; ".join(self.found_at(d) for d in curve if d.sign not in (0, one.sign))
        ending = f"{f'; but {otherwise}' if otherwise else ''}{condition}."
        saved = next((s for s in self.savings(one) if s.labels == self.whole), None)
        if one.sign > 0 and saved and saved.needed and saved.high is not None and saved.high < saved.labels:
            return f"{_upper(what)} {self.saving(saved)}{ending}"
        if one.sign:
            alike = [self.found_at(d) for d in curve if d.labels == self.whole and d.sign in (0, one.sign)]
            at_all = f"; {alike[0]}" if alike and len(curve) > 1 else ""
            return f"{_upper(what)} {'gains' if one.sign > 0 else 'loses'}: {gap}{at_all}{ending}"
        doubt = f", {_unclear(self.found.primary)}" if one.unclear else ""
        return f"No gain from {what} was found: {gap}{doubt}{ending}"

    def details(self, one: Difference) -> list[str]:
        """What stands behind the sentence at the top."""
        if one.interval.low is None:
            return []
        who = _upper(self.what(one))
        lines, curve = [f"{_upper(self.observed(one))}."], self.curve(one)
        said: dict[tuple[bool, str], list[str]] = {}
        for d in sorted(curve, key=lambda d: (d.labels not in one.over, not d.sign, d.unclear, -d.sign)):
            only = d.labels not in one.over
            kind = (_seen(d) if only else _kind(d)) + " that is not clear" * d.unclear
            said.setdefault((only, kind), []).append(f"{d.labels:,}")
        listed = "; ".join(
            f"{kind} with {enumerated(counts)} labels" for (only, kind), counts in said.items() if not only
        )
        seen = "; ".join(f"{kind} with {enumerated(counts)} labels" for (only, kind), counts in said.items() if only)
        listed += f"; observed only: {seen}" if seen else ""
        if len(curve) > 1:
            count = len(self.found.table)
            lines.append(f"{who} by number of labels, after Holm's adjustment for {count} comparisons: {listed}.")
        for saved in sorted(self.savings(one), key=lambda s: -s.labels):
            ends = [end is not None for end in (saved.low, saved.high)]
            if (saved.labels == self.whole and (any(ends) or saved.needed is None)) or all(ends):
                fair = saved.labels in one.over
                lines.append(f"{who if fair else f'Observed only: {self.what(one)}'} {self.saving(saved)}.")
        return lines

    def general(self) -> list[str]:
        """What is not about one pre-trained start."""
        lines = self.beaten()
        lines += [f"{_upper(self.observed(d))}." for d in self.found.secondary if d.start == "cnn"]
        matched = sorted({count for d in self.found.primary for count in d.matched})
        if matched:
            lines.append(
                f"With {enumerated([f'{n:,}' for n in matched])} labels the baseline is the one trained at the FLOPs "
                "of pre-training and fine-tuning together, because it was the better of the two; choosing so favours "
                "the baseline."
            )
        lines.append(
            "Intervals are of one comparison each; a gain or a loss is one that is clear after Holm's adjustment, for "
            "which a spread between draws counts as no less than the average one with as many labels."
        )
        return lines

    def beaten(self) -> list[str]:
        """Where pixels or random weights are better than every use of a pre-trained network."""
        above: dict[tuple[str, str], list[tuple[str, str]]] = {}
        better = METRICS[self.metric].sign
        for count in self.all.about["labels"]:
            means: dict[tuple[str, str], float] = {}
            for start, use in dict.fromkeys((s.start, s.use) for s in self.all.scores):
                values = [s.value for s in self.all.of(start, use, count)]
                if values:
                    means[start, use] = better * sum(values) / len(values)
            own, plain = ({k: v for k, v in means.items() if k[0] in group} for group in (pretrained(), untrained()))
            if not own or not plain or max(plain.values()) <= max(own.values()):
                continue
            one, other = max(plain, key=plain.__getitem__), max(own, key=own.__getitem__)
            gap = difference_at(self.all, one, other, count)
            if gap is not None:
                found = f"{self.gap(gap)} against {self.name(other[0])} ({_USES[other[1]]})"
                above.setdefault(one, []).append((f"{count:,}", found))
        return [
            f"With {enumerated([count for count, _ in found])} labels {titles()[one[0]]} ({_USES[one[1]]}) are on "
            f"average above every use of pre-trained weights: {self.word} to the best of them "
            f"{'; '.join(gap if len(found) == 1 else f'with {count} labels {gap}' for count, gap in found)}."
            for one, found in above.items()
        ]

    def cheaper(self) -> list[str]:
        """Where features without any training do clearly better than both sides of what is judged."""
        better = METRICS[self.metric].sign
        for one in self.found.primary:
            last = [d for d in self.found.table if d.labels == max(one.over)]
            own = next(d for d in last if (d.start, d.use) == (one.start, one.use))
            level = max(better * own.value, better * own.against_value)
            above = [d for d in last if d.start in untrained() and d.sign > 0 and better * d.value > level]
            if above:
                d = max(above, key=lambda d: better * d.value)
                return [
                    f"Without any training {titles()[d.start]} ({_USES[d.use]}) do better than both: {self.word} "
                    f"{self.gap(d)} against the labelled baseline {self.span(d)}."
                ]
        return []

    def protocols(self, one: Difference) -> list[str]:
        """Whether the two sides of a comparison followed the same rules of training."""
        if one.use != "train":
            return []
        both = [self.all.of(start, "train", matched=m) for start in (one.start, BASELINE) for m in (False, True)]
        first, *others = [score.result for side in both for score in side]
        other = next((result for result in others if result.protocol_hash != first.protocol_hash), None)
        if other is None:
            return []
        fields = differences(first.protocol, other.protocol)
        return [f"the protocols of {self.name(one.start)} fine-tuning and of the labelled baseline differ ({fields})"]

    def leaks(self, one: Difference) -> list[str]:
        """Whether test images that pre-training saw may be what a difference comes from."""
        said = [d for d in self.found.table if d.start == one.start and d.labels in one.over]
        why = reason(self.all, one, said)
        return [why] if why else []

    def unfair(self, one: Difference) -> list[str]:
        """Where the baseline had the FLOPs of pre-training, but not with any number of labels that the start has."""
        if set(one.over) <= set(fair_counts(self.all)):
            return []
        return [f"{self.name(one.start)} has no result where the baseline had the FLOPs of pre-training"]

    def elsewhere(self, one: Difference) -> list[str]:
        """What was seen with numbers of labels on which no verdict stands."""
        found = [d for d in self.found.observed if (d.start, d.use) == (one.start, one.use)]
        return [
            f"{_upper(self.span(d))}, where the baseline was not trained at the FLOPs of pre-training and fine-tuning, "
            f"no verdict is given on {self.what(one)}; observed: {self.word} {self.gap(d)}{self.condition(d)}."
            for d in found
        ]

    def nothing(self) -> str:
        """Why there is no comparison to give a verdict on."""
        variants = [s for s in self.all.starts if s not in pretrained() and s.partition(" (")[0] in pretrained()]
        if variants:
            names = enumerated([self.name(start) for start in variants])
            return f"several variants are given, {names}, and a verdict is on one of each: name the runs of one"
        return "there is no pre-trained network and labelled baseline with draws of labels in common"

    def observed(self, one: Difference) -> str:
        """A difference that nothing follows from."""
        use = ", fine-tuning," if one.use == "train" and one.start != "cnn" else ""
        against = f"against the labelled baseline {self.span(one)}"
        return f"{self.what(one)}{use} {against}: {self.word} {self.gap(one)}{self.condition(one)}"

    def name(self, start: str) -> str:
        """What a start is called."""
        return str(self.all.about["methods"].get(start, {}).get("name", start))

    def what(self, one: Difference) -> str:
        """What is judged."""
        before, behind = {"public": ("starting from ", ""), "cnn": ("", "")}.get(one.start, ("", " pre-training"))
        use = "" if one.use == "train" else f" ({_USES[one.use]})"
        return f"{before}{self.name(one.start)}{behind}{use}"

    def curve(self, one: Difference) -> list[Difference]:
        """The same method at every number of labels."""
        return [d for d in self.found.table if (d.start, d.use) == (one.start, one.use)]

    def savings(self, one: Difference) -> list[Saving]:
        """Labels that a start's primary use needs for what the baseline reaches."""
        return [s for s in self.found.savings if (s.start, s.use) == (one.start, one.use)]

    def span(self, one: Difference) -> str:
        """Over which numbers of labels."""
        if len(one.over) == 1:
            return f"with {self.labels(one.over[0])}"
        between = [d.labels for d in self.curve(one) if min(one.over) <= (d.labels or 0) <= max(one.over)]
        if len(between) > len(one.over):
            return f"on average over {enumerated([f'{n:,}' for n in one.over])} labels"
        return f"on average over {min(one.over):,} to {max(one.over):,} labels"

    def gap(self, one: Difference) -> str:
        """A difference with its interval."""
        i = one.interval
        text = f"{self.signed(i.estimate)}{self.unit}"
        if i.low is None or i.high is None:
            return f"{text} (no interval)"
        beside = "" if one.images else " without chance in the choice of test images"
        return f"{text} (95 % interval{beside} {self.signed(i.low)} to {self.signed(i.high)})"

    def found_at(self, one: Difference) -> str:
        """What was found at one number of labels."""
        doubt = f", {_unclear(self.found.table)}" if one.unclear else ""
        return f"{_kind(one)} with {self.labels(one.labels or 0)}{doubt}: {self.gap(one)}"

    def labels(self, count: int) -> str:
        """A number of labels."""
        every = count == self.whole and len(self.all.about["labels"]) > 1
        return f"{'all ' if every else ''}{count:,} labels"

    def saving(self, saved: Saving) -> str:
        """Whether and with how many labels the baseline's level is reached: in percent of all where it has all."""
        value = shown(self.metric, saved.level) + (" %" if self.unit else "")
        metric, place = METRICS[self.metric].words, f"({value} with {self.labels(saved.labels)})"
        if saved.needed is None:
            most = self.labels(self.most(saved))
            return (
                f"does not reach the labelled baseline's {metric} {place}: even {most} are not enough{self.ends(saved)}"
            )
        if saved.needed > saved.labels:
            more = f"{saved.needed:,.0f} labels{self.ends(saved)}"
            return f"needs {more} for the {metric} that the labelled baseline reaches with {saved.labels:,} ({value})"
        needed = f"{saved.needed:,.0f} labels"
        if saved.labels == self.whole:
            needed = f"{_percent(saved.shares[0] or 0)} % of the labels"
        fewer = " or fewer" if saved.at_once else ""
        return f"reaches the labelled baseline's {metric} {place} with {needed}{fewer}{self.ends(saved)}"

    def most(self, saved: Saving) -> int:
        """The most labels that the method was given."""
        return max(score.labels for score in self.all.of(saved.start, saved.use))

    def ends(self, saved: Saving) -> str:
        """The confidence set of the labels needed, in brackets."""
        if saved.note:
            return " (no interval)"
        if saved.low == self.most(saved):
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

    def condition(self, one: Difference) -> str:
        """On what a sentence stands where there are too few pre-training seeds."""
        if not one.conditional:
            return ""
        return ", conditional on " + ("this one backbone" if one.seeds == 1 else f"these {one.seeds} backbones")

    @property
    def word(self) -> str:
        """What a difference is one in; positive is better, also where a smaller value is."""
        metric = METRICS[self.metric]
        return f"{'difference' if metric.larger_is_better else 'advantage'} in {metric.words}"

    @property
    def unit(self) -> str:
        """Of a difference."""
        return " points" if METRICS[self.metric].percent else ""

    def signed(self, value: float) -> str:
        """A difference as a number with its sign; what rounds to zero has none."""
        size = shown(self.metric, abs(value))
        return size if float(size) == 0 else f"{'+' if value > 0 else '-'}{size}"


def _kind(one: Difference) -> str:
    """What was found, in a few words."""
    if not one.sign and not one.unclear:
        return "no clear difference"
    return "a gain" if one.interval.estimate > 0 else "a loss"


def _seen(one: Difference) -> str:
    """The same where no verdict stands on it."""
    if not one.sign and not one.unclear:
        return "no clear difference"
    return "a positive difference" if one.interval.estimate > 0 else "a negative difference"


def _unclear(family: Sequence[Difference]) -> str:
    return f"not clear after Holm's adjustment for {len(family)} comparisons"


def _percent(share: float) -> str:
    if 99 < share < 100:  # not all of them
        return f"{min(share, 99.9):.1f}"
    return f"{share:.0f}" if share >= 9.5 else f"{share:#.2g}"


def enumerated(words: Sequence[str]) -> str:
    """Some words with commas, and an "and" before the last."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def _upper(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
