"""What a verdict says at the top, in plain words, and what stands beside it because less was done than is said.

Nothing is said without its interval, a gain or a loss only where Holm's adjusted p-value is below 0.05. Where the
fair-baseline contract was broken or the two sides followed different protocols, no verdict is given at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ssl_vit.report.cells import percent, seconds
from ssl_vit.report.findings.comparisons import Comparisons, compare, interval_of, primary_use
from ssl_vit.report.findings.contract import tuned_counts
from ssl_vit.report.findings.records import Verdict
from ssl_vit.report.findings.sentences import Sentences, enumerated, upper


@dataclass(frozen=True)
class Findings(Comparisons):
    """Numbers and sentences of a verdict."""

    headline: str
    """What stands at the top: a sentence for each pre-trained start."""
    more: tuple[str, ...]
    refused: tuple[str, ...]
    """Why there is no verdict; empty where there is one."""
    judged: tuple[str, ...]
    """Starts on which a verdict is given."""


def find(verdict: Verdict, broken: Sequence[str] = (), each: Mapping[str, Sequence[str]] | None = None) -> Findings:
    """Compares, and says what was found.

    Args:
        verdict: All numbers.
        broken: What of the fair-baseline contract was not kept, a sentence each.
        each: What was not kept for one start alone, by start.
    """
    found = compare(verdict)
    words = Sentences(verdict, found)
    refused, told, more, judged = list(broken), list[str](), list[str](), list[str]()
    observed: dict[str, str] = {}
    for one in found.primary:
        reasons = [*broken, *(each or {}).get(one.start, ()), *words.reasons(one)]
        refused += [reason for reason in reasons if reason not in refused]
        if reasons:
            observed[words.what(one)] = words.observed(one)
        else:
            told += [words.verdict(one), *words.elsewhere(one)]
            more += words.details(one)
            judged += [one.start] if one.interval.low is not None else []
    if not found.primary:
        refused.append(words.nothing())
    if refused:
        about = f" on {enumerated([*observed])}" if told else ""
        seen = f" Observed only: {'; '.join(observed.values())}." if observed else ""
        told.append(f"No verdict is given{about}: {'; '.join(reason.rstrip('.') for reason in refused)}.{seen}")
    told += words.cheaper()
    if verdict.about.get("transductive"):
        told.append(
            "Pre-training saw the test images, without their labels (transductive): this says nothing about images "
            "that it has not seen."
        )
    more += words.general()
    return Findings(
        **vars(found), headline=" ".join(told), more=tuple(more), refused=tuple(refused), judged=tuple(judged)
    )


def limits(verdict: Verdict, starts: Sequence[str]) -> tuple[str, ...]:
    """Whether anything was learned by the starts that are judged, what only some got, and what was cut short."""
    if not starts:
        return ()
    said = _guessing(verdict, starts), _tuning(verdict), _length(verdict), _too_short(verdict)
    return tuple(sentence for sentence in said if sentence)


def _guessing(verdict: Verdict, starts: Sequence[str]) -> str:
    """That networks were compared which learned nothing."""
    kind, metric, labels = verdict.about["kind"], verdict.about["metric"], verdict.told("test").get("labels")
    if kind != "class" or not labels:
        return ""
    counts = Counter(labels)
    levels = {"top1": 100.0 * max(counts.values()) / len(labels), "balanced": 100.0 / len(counts), "auroc": 50.0}
    sides = [verdict.by_labels("scratch", "train", matched=matched) for matched in (False, True)]
    sides += [verdict.by_labels(start, primary_use(verdict, start)) for start in starts]
    found = [interval_of(scores, verdict.clusters) for side in sides for scores in side.values()]
    level = levels.get(metric)
    if level is None or any((one.estimate if one.low is None else one.low) > level + 1e-6 for one in found):
        return ""
    names = " and ".join(verdict.name(start) for start in starts)
    return (
        f"Guessing gives {level:.1f} %, and neither the baseline nor {names} was clearly above that with any number of "
        "labels: networks were compared that learned nothing."
    )


def _tuning(verdict: Verdict) -> str:
    """At which numbers of labels options were tuned; ``findings`` says where the baseline was trained for longer."""
    counts, tuned = verdict.about["labels"], tuned_counts(verdict)
    if not tuned or len(tuned) == len(counts):
        return ""
    words = enumerated([f"all {n:,}" if n == max(counts) else f"{n:,}" for n in tuned])
    return f"Options were tuned with {words} labels only; with fewer every method took its usual ones."


def _length(verdict: Verdict) -> str:
    """How much shorter than usual training was."""
    plan, options = verdict.told("plan"), (verdict.told("provenance").get("config") or {}).get("verdict") or {}
    given = [word.strip() for word in str(options.get("backbones") or "").split(",")]
    made = any(str(run.get("run")) not in given for start in verdict.methods for run in verdict.runs(start))
    words = {"pretraining": "pre-training"} if made else {}
    words["length"] = "training on labels"
    shares = {what: float(plan.get(name) or options.get(name) or 1.0) for name, what in words.items()}
    short = [(what, percent(share)) for what, share in shares.items() if share < 0.995]
    if not short:
        return ""
    (first, share), *others = short
    within = f"within the budget of {seconds(plan['budget'])}, " if plan.get("budget") else ""
    also = "".join(f", and {what} {much}" for what, much in others)
    subject = "longer training" if others else f"longer {first}"
    return upper(f"{within}{first} had {share} of its usual length{also}: {subject} may change this.")


def _too_short(verdict: Verdict) -> str:
    """That not even the smallest plan fitted."""
    notes = [str(note) for note in verdict.told("plan").get("notes", [])]
    return next((f"{upper(note)}." for note in notes if note.startswith("the budget is too short")), "")
