"""What a verdict says, in plain words.

Nothing is said without its interval, a gain or a loss only where Holm's adjusted p-value is below 0.05. Where the
fair-baseline contract was broken or the two sides followed different protocols, no verdict is given at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ssl_vit.report.findings.comparisons import Comparisons, compare
from ssl_vit.report.findings.records import Verdict
from ssl_vit.report.findings.sentences import Sentences, enumerated


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
