"""The fair-baseline contract: what must hold before anyone may say that pre-training wins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ssl_vit.report.records import Verdict

OWN = ("mae", "dino")
"""Starts that the verdict pre-trains itself, with the baseline's network."""
BASELINE = "scratch"
PROBES, TRAININGS, SEEDS = 10, 5, 3
"""Draws of labels and pre-training seeds that a verdict should have."""
_TUNED = {"lr": "learning rate", "weight_decay": "weight decay", "layer_decay": "layer decay", "steps": "length"}


@dataclass(frozen=True)
class Item:
    """One promise of the contract."""

    claim: str
    kept: bool | None
    """None where it cannot be known."""
    detail: str
    reason: str = ""
    """Why nobody may say that pre-training wins, where this is not kept; empty where it may be said all the same."""


def check(verdict: Verdict) -> tuple[Item, ...]:
    """Every promise, and whether the numbers and what is recorded beside them keep it.

    Args:
        verdict: All numbers.
    """
    own = [start for start in OWN if start in verdict.methods]
    compared = [start for start in (BASELINE, *own) if start in verdict.methods]
    items = [_architecture(verdict, compared), _protocol(verdict, compared), *_tuning(verdict, compared)]
    if own:
        items += [_matched(verdict), _last_step(verdict, own)]
    items += [*_leaks(verdict), _tuning_labels(verdict)]
    if own:
        items.append(_seeds(verdict, own))
    return (*items, *_draws(verdict))


def broken(items: Iterable[Item]) -> tuple[str, ...]:
    """What makes the headline refuse "pre-training wins", in words; also what cannot be known.

    Different protocols are not among it: ``findings`` looks at those of every pre-trained start by itself.

    Args:
        items: From ``check``.
    """
    return tuple(item.reason for item in items if item.reason and not item.kept)


def _names(verdict: Verdict, starts: Iterable[str]) -> str:
    return ", ".join(verdict.name(start) for start in starts)


def _architecture(verdict: Verdict, compared: Sequence[str]) -> Item:
    claim = "The baseline is the same network"
    hashes = {start: verdict.methods[start].get("architecture_hash") for start in compared}
    if len(compared) < 2 or BASELINE not in compared or None in hashes.values():
        reason = "it is not recorded whether the baseline is the same network"
        return Item(claim, None, "the architecture of the baseline or of a pre-trained network is not recorded", reason)
    if len(set(hashes.values())) == 1:
        return Item(claim, True, f"{_names(verdict, compared)}: {verdict.methods[BASELINE].get('network', 'one hash')}")
    own = hashes[BASELINE]
    others = _names(verdict, [start for start in compared if hashes[start] != own])
    return Item(claim, False, f"another than from scratch: {others}", "the baseline is another network")


def _protocol(verdict: Verdict, compared: Sequence[str]) -> Item:
    claim = "Same images seen, augmentation and rules of training"
    hashes = {
        start: {s.result.protocol_hash for s in verdict.of(start, "train")}
        | {s.result.protocol_hash for s in verdict.of(start, "train", matched=True)}
        for start in compared
    }
    trained = [start for start in compared if hashes[start]]
    found = sorted(set().union(*hashes.values()))
    if BASELINE not in trained or len(trained) < 2:
        return Item(claim, None, "fine-tuning and training from scratch are not both there")
    if len(found) == 1:
        return Item(claim, True, f"{_names(verdict, trained)}: one protocol, {found[0]}")
    return Item(claim, False, f"their protocols differ: {', '.join(found)}")


def _tuning(verdict: Verdict, compared: Sequence[str]) -> list[Item]:
    """As many trials for all; the options that must have been tried; for every method whose weights are trained."""
    trained = [start for start in verdict.starts if verdict.of(start, "train")]
    studies: list[dict[str, Any]] = [s for s in verdict.studies if s["use"] == "train"]
    counts = {start: {len(s["trials"]) for s in studies if s["start"] == start} for start in trained}
    equal, own = "As many tuning trials for every method", "Every method is tuned: learning rate, decays, length"
    if not studies:
        if verdict.told("tuning"):
            return [Item(equal, False, "none"), Item(own, False, "nothing was tuned", "the baseline was not tuned")]
        reason = "it is not recorded whether the baseline was tuned"
        return [Item(equal, None, "not recorded"), Item(own, None, "not recorded", reason)]
    different = len(set().union(*counts.values())) != 1 or not all(counts.values())
    words = "; ".join(f"{verdict.name(s)} {', '.join(map(str, sorted(n))) or 'none'}" for s, n in counts.items())
    lacking = {start: _lacking([s for s in studies if s["start"] == start]) for start in trained}
    missed = {start: lacks for start, lacks in lacking.items() if lacks}
    told = "; ".join(f"{verdict.name(start)}: {', '.join(lacks)}" for start, lacks in missed.items())
    unlike = _names(verdict, [start for start in missed if start in compared])
    reason = f"not everything was tuned for: {unlike}" if unlike else ""
    return [
        Item(equal, not different, words, "methods had different numbers of tuning trials"),
        Item(own, not missed, f"not tried: {told}" if missed else str(verdict.told("tuning").get("space", "")), reason),
    ]


def _lacking(studies: Sequence[dict[str, Any]]) -> list[str]:
    """Options of which there was no choice."""
    lacks: list[str] = []
    for option, words in _TUNED.items():
        tried = {trial.get(option) for study in studies for trial in study["trials"]}
        if len(tried) < 2:
            lacks.append(words)
        elif option == "layer_decay" and 1.0 not in tried:
            lacks.append("layer decay 1.0")
    return lacks


def _matched(verdict: Verdict) -> Item:
    claim = "From scratch also at the FLOPs of pre-training and fine-tuning"
    there = sorted({s.labels for s in verdict.of(BASELINE, "train", matched=True)})
    usual = sorted({s.labels for s in verdict.of(BASELINE, "train")})
    if not there:
        reason = "the baseline was not trained at the FLOPs of pre-training and fine-tuning"
        return Item(claim, False, "there is no such training from scratch", reason)
    words = "with " + ", ".join(f"{count:,}" for count in there) + " labels"
    lacks = [f"{count:,}" for count in usual if count not in there]
    return Item(claim, True, words + (f"; not with {', '.join(lacks)}" if lacks else ""))


def _last_step(verdict: Verdict, own: Sequence[str]) -> Item:
    claim = "Checkpoints are the last step, not the best on test images"
    told = [(start, run.get("checkpoint")) for start in own for run in verdict.methods[start].get("pretraining", [])]
    if not told or None in (words for _, words in told):
        return Item(claim, None, "not recorded")
    others = sorted({f"{verdict.name(start)}: {words}" for start, words in told if words != "last step"})
    return Item(claim, not others, "; ".join(others) or f"{len(told)} of {len(told)} pre-trainings")


def _leaks(verdict: Verdict) -> list[Item]:
    claim = "No test image among the images to pre-train on, unless declared"
    others = "No test image among the training images, and no group on both sides"
    if verdict.leaks is None:
        words = "the leak guard has not looked"
        return [
            Item(claim, None, words, "the leak guard has not looked for test images in the pool"),
            Item(others, None, words),
        ]
    leaks = [one for one in verdict.leaks.get("findings", []) if one.get("leak")]
    pool = [one for one in leaks if one["between"] == "test-pool" and one["kind"] != "group"]
    rest = [one for one in leaks if one not in pool]
    if verdict.about.get("transductive"):
        first = Item(claim, True, "declared: pre-training saw test images, without their labels (--data.transductive)")
    else:
        first = Item(claim, not pool, _sentences(pool), "test images are among the images to pre-train on")
    return [first, Item(others, not rest, _sentences(rest))]


def _sentences(findings: Sequence[dict[str, Any]]) -> str:
    return " ".join(str(one["sentence"]) for one in findings) or "the leak guard found none"


def _tuning_labels(verdict: Verdict) -> Item:
    """Options are those of the largest tuning with no more labels; below all of them the usual ones are taken."""
    claim = "Labels used for tuning are counted"
    used = sorted({study["labels"] for study in verdict.studies if study["use"] == "train"})
    if not used:
        return Item(claim, None, "no tuning is recorded")
    more = [count for count in used if count > max(verdict.about["labels"])]
    if more:
        return Item(claim, False, f"options were chosen with {_counts(more)} labels, more than any number stands on")
    below = [count for count in verdict.about["labels"] if count < used[0]]
    words = f"options were chosen with {_counts(used)} labels, and used with as many or more"
    return Item(claim, True, f"{words}; with {_counts(below)} every method took its usual options" if below else words)


def _counts(numbers: Iterable[int]) -> str:
    return ", ".join(f"{number:,}" for number in numbers)


def _seeds(verdict: Verdict, own: Sequence[str]) -> Item:
    least = min(len(verdict.methods[start].get("pretraining", [])) for start in own)
    words = f"{least} each" if least >= SEEDS else f"{least}: every sentence is conditional on this one backbone"
    if 1 < least < SEEDS:
        words = f"{least}: every sentence is conditional on these backbones"
    return Item(f"At least {SEEDS} pre-training seeds", least >= SEEDS, words)


def _draws(verdict: Verdict) -> list[Item]:
    items: list[Item] = []
    for words, uses, enough in (("probes", ("knn", "linear"), PROBES), ("trained networks", ("train",), TRAININGS)):
        counts: dict[tuple[str, str, int], int] = {}
        for s in verdict.scores:
            if s.use in uses and not s.matched:
                counts[s.start, s.use, s.labels] = counts.get((s.start, s.use, s.labels), 0) + 1
        if counts:
            least = min(counts.values())
            items.append(Item(f"At least {enough} draws of labels for {words}", least >= enough, f"{least}"))
    return items
