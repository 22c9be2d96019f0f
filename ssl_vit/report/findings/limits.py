"""What stands beside the advice because less was done than is said: nothing learned, too little tuned, cut short."""

from __future__ import annotations

from ssl_vit.report.cells import enumerated, percent, seconds, upper
from ssl_vit.report.findings.contract import tuned_counts
from ssl_vit.report.findings.recommendation import guess_of
from ssl_vit.report.findings.records import Score, Verdict
from ssl_vit.report.findings.tables import interval_of, way_of
from ssl_vit.statistics.advice import Way


def limits(verdict: Verdict) -> tuple[str, ...]:
    """Whether anything was learned, what only some got, and what was cut short, in sentences."""
    said = _guessing(verdict), _tuning(verdict), _length(verdict), _too_short(verdict), _transductive(verdict)
    return tuple(sentence for sentence in said if sentence)


def _guessing(verdict: Verdict) -> str:
    """That nothing which was tried is clearly above guessing."""
    level, found = guess_of(verdict), dict[tuple[Way, int], list[Score]]()
    for one in verdict.scores if level is not None else ():
        found.setdefault((way_of(one), one.labels), []).append(one)
    intervals = (interval_of(scores, verdict.clusters) for scores in found.values())
    if level is None or any((one.estimate if one.low is None else one.low) > level + 1e-6 for one in intervals):
        return ""
    return (
        f"Guessing gives {level:.1f} %, and nothing was clearly above that with any number of labels: nothing was "
        "learned."
    )


def _tuning(verdict: Verdict) -> str:
    """At which numbers of labels options were tuned."""
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


def _transductive(verdict: Verdict) -> str:
    if not verdict.about.get("transductive"):
        return ""
    return (
        "Pre-training saw the test images, without their labels (transductive): this says nothing about images that it "
        "has not seen."
    )
