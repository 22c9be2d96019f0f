"""The fair-baseline contract: what must hold before anyone may say that pre-training wins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from ssl_vit.methods import METHODS
from ssl_vit.methods.starts import BASELINE, PUBLIC, from_scratch, pretrained, start_called
from ssl_vit.report.cells import percent, several
from ssl_vit.report.findings.records import Verdict
from ssl_vit.report.findings.tuned import CLAIMS, TOLD
from ssl_vit.runs.identity import differences

PROBES, TRAININGS, SEEDS = 10, 3, 3
"""Draws of labels and pre-training seeds that a verdict should have."""
ENOUGH = 0.98
"""Share of the FLOPs of pre-training and fine-tuning that counts as all: training ends with a whole step."""
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
    each: Mapping[str, str] = field(default_factory=dict)
    """The same of single starts, where it may still be said of others; without words where ``findings`` has them."""


def check(verdict: Verdict) -> tuple[Item, ...]:
    """Every promise, and whether the numbers and what is recorded beside them keep it."""
    begun = [start for start in pretrained(verdict.methods) if start in verdict.methods]
    own = [start for start in begun if start_called(start).made and start_called(start).network != PUBLIC]
    compared = dict.fromkeys((BASELINE, *map(baseline_of, begun), *begun))
    items = [_architecture(verdict, begun), _protocol(verdict, begun), *_tuning(verdict, tuple(compared))]
    items += [_matched(verdict, own)] if begun else []
    items += [_last_step(verdict, own)] if own else []
    return (*items, *_leaks(verdict), _tuning_labels(verdict), *_looked_at(verdict))


def counted(verdict: Verdict) -> tuple[Item, ...]:
    """Whether there are as many draws and pre-training seeds as there should be."""
    items: list[Item] = []
    seeds = {(s.start, s.pretraining) for s in verdict.scores if s.start.partition("@")[0] in METHODS}
    if seeds:
        least = min(Counter(start for start, _ in seeds).values())
        items.append(Item(f"At least {SEEDS} pre-training seeds", least >= SEEDS, f"{least}"))
    for words, uses, enough in (("probes", ("knn", "linear"), PROBES), ("trained networks", ("train",), TRAININGS)):
        if least := _least_draws(verdict, uses):
            items.append(Item(f"At least {enough} draws of labels for {words}", least >= enough, f"{least}"))
    return tuple(items)


def broken(items: Iterable[Item], start: str = "") -> tuple[str, ...]:
    """What makes the headline refuse "pre-training wins", in words; also what cannot be known.

    Different protocols and test images in the pool are not among it: ``findings`` looks at those of every pre-trained
    start by itself.

    Args:
        items: From ``check``.
        start: What is not kept for this pre-trained start alone; empty for what is not kept for any.
    """
    reasons = [item.each.get(start, "") if start else item.reason for item in items if not item.kept]
    return tuple(reason for reason in reasons if reason)


def baseline_of(start: str) -> str:
    """Whom a start is compared with: the same network from scratch; public weights with the ViT, if it is that one.

    A network that is trained from scratch is its own.
    """
    own = from_scratch(start)
    return BASELINE if own == PUBLIC else own


def _names(verdict: Verdict, starts: Iterable[str]) -> str:
    return ", ".join(verdict.name(start) for start in starts)


def _architecture(verdict: Verdict, pretrained: Sequence[str]) -> Item:
    methods = verdict.methods
    base = {start: methods.get(baseline_of(start), {}) for start in pretrained}
    ours, theirs = ({s: of[s].get("architecture_hash") for s in pretrained} for of in (base, methods))
    unknown = [start for start in pretrained if ours[start] is None or theirs[start] is None]
    same = [start for start in pretrained if start not in unknown and theirs[start] == ours[start]]
    others = {s: str(methods[s].get("network", "not named")) for s in pretrained if s not in (*unknown, *same)}
    each = dict.fromkeys(unknown, "it is not recorded whether the baseline is the same network")
    each |= {
        start: f"the network of {verdict.name(start)} is another one ({its}) than the baseline's "
        f"({base[start].get('network', 'a network')}), so the difference is not one of pre-training alone"
        for start, its in others.items()
    }
    words = list[str]()
    for one in dict.fromkeys(map(baseline_of, same)):
        alike = _names(verdict, [one, *(start for start in same if baseline_of(start) == one)])
        words.append(f"{alike}: {methods[one].get('network', 'a network')}")
    words += [f"{verdict.name(start)}: {its}" for start, its in others.items()]
    words += [f"{_names(verdict, unknown)}: not recorded"] if unknown else []
    kept = False if others else None if unknown or not same else True
    return Item("The baseline is the same network", kept, "; ".join(words) or "there is nothing to compare", each=each)


def _protocol(verdict: Verdict, pretrained: Sequence[str]) -> Item:
    """That of single starts is looked at by ``findings``, too."""
    claim = "Same training data, augmentation and rules (length is tuned per method)"
    bases = dict.fromkeys((BASELINE, *map(baseline_of, pretrained)))
    found = {start: verdict.trained(start) for start in (*bases, *pretrained)}
    trained = [start for start in found if found[start] and found[baseline_of(start)]]
    if trained[:1] != [BASELINE] or not any(start in pretrained for start in trained):
        return Item(claim, None, "fine-tuning and training from scratch are not both there")
    words, rules = dict[str, str](), dict[str, list[str]]()
    for start in trained:
        first = found[baseline_of(start)][0].result
        rules.setdefault(first.protocol_hash, []).append(start)
        other = next((s.result for s in found[start] if s.result.protocol_hash != first.protocol_hash), None)
        if other is not None:
            words[start] = f"{verdict.name(start)}: {differences(other.protocol, first.protocol)}"
    if not words:
        said = "; ".join(f"{_names(verdict, starts)}: one protocol, {rule}" for rule, starts in rules.items())
        return Item(claim, True, said)
    return Item(claim, False, f"their protocols differ; {'; '.join(words.values())}", each=dict.fromkeys(words, ""))


def _tuning(verdict: Verdict, compared: Sequence[str]) -> list[Item]:
    """As many trials for all; the options that must have been tried; for every method whose weights are trained."""
    trained = [start for start in verdict.starts if verdict.of(start, "train")]
    studies = {start: list[dict[str, Any]]() for start in trained}
    for study in verdict.studies:
        if study["use"] == "train":
            studies.setdefault(study["start"], []).append(study)
    equal, own = "As many tuning trials for every method", "Every method is tuned: learning rate, decays, length"
    if not any(studies.values()):
        if verdict.told("tuning"):
            return [Item(equal, False, "none"), Item(own, False, "nothing was tuned", "the baseline was not tuned")]
        reason = "it is not recorded whether the baseline was tuned"
        return [Item(equal, None, "not recorded"), Item(own, None, "not recorded", reason)]
    counts = {start: {len(s["trials"]) for s in studies[start]} for start in trained}
    different = len(set().union(*counts.values())) != 1 or not all(counts.values())
    words = "; ".join(f"{verdict.name(s)} {', '.join(map(str, sorted(n))) or 'none'}" for s, n in counts.items())
    missed = {start: lacks for start in trained if (lacks := _lacking(studies[start]))}
    told = "; ".join(f"{verdict.name(start)}: {', '.join(lacks)}" for start, lacks in missed.items())
    unlike = _names(verdict, [start for start in missed if start in compared])
    detail = f"not tried: {told}" if missed else str(verdict.told("tuning").get("space", ""))
    usual = [n for n in verdict.about["labels"] if any(n not in tuned_counts(verdict, start) for start in trained)]
    if usual:
        detail = f"not with {several(usual)} labels, where every method took its usual options; else {detail}"
    return [
        Item(equal, not different, words, "methods had different numbers of tuning trials"),
        Item(own, not missed and not usual, detail, f"not everything was tuned for: {unlike}" if unlike else ""),
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


def tuned_counts(verdict: Verdict, start: str = BASELINE) -> list[int]:
    """Numbers of labels at which options come from a tuning: from the fewest that one was made with."""
    least = min((s["labels"] for s in verdict.studies if (s["use"], s["start"]) == ("train", start)), default=None)
    return [count for count in verdict.about["labels"] if least is not None and count >= least]


def _flops(verdict: Verdict, start: str) -> float | None:
    """Those of the longer baseline as a share of a start's pre-training and fine-tuning, where it is least.

    Returns:
        None where FLOPs are not recorded.
    """
    longer, own = verdict.by_labels(baseline_of(start), "train", matched=True), verdict.by_labels(start, "train")
    shares: list[float] = []
    for count, scores in longer.items():
        before = _mean_flops(verdict.runs(start))
        after, given = (_mean_flops([s.cost for s in side]) for side in (own.get(count, []), scores))
        if before is None or given is None or (after is None and count in own):
            return None
        shares.append(given / (before + (after or 0.0)))
    return min(shares, default=None)


def _mean_flops(costs: Sequence[Mapping[str, Any]]) -> float | None:
    known = [cost["flops"] for cost in costs if cost.get("flops")]
    return mean(known) if known and len(known) == len(costs) else None


def _matched(verdict: Verdict, own: Sequence[str]) -> Item:
    claim = "From scratch also with at least the FLOPs of pre-training and fine-tuning"
    if not own:
        return Item(claim, None, "what public weights cost to make is not known")
    bases = dict.fromkeys(map(baseline_of, own))
    longer = {base: verdict.by_labels(base, "train", matched=True) for base in bases}
    without = "the baseline was not trained at the FLOPs of pre-training and fine-tuning"
    if not any(longer.values()):
        return Item(claim, False, "there is no such training from scratch", without)
    there = sorted({count for counts in longer.values() for count in counts})
    shares = {start: _flops(verdict, start) for start in own if longer[baseline_of(start)]}
    each = {
        start: f"the baseline had only {percent(share)} of the FLOPs of {verdict.name(start)} pre-training and "
        "fine-tuning"
        for start, share in shares.items() if share is not None and share < ENOUGH
    }  # fmt: skip
    each |= {start: without for start in own if start not in shares}
    asked = {count: None for base in bases for count in verdict.by_labels(base, "train")}
    lacks = sorted(n for n in asked if any(n not in longer[base] and verdict.of(base, "train", n) for base in bases))
    words = [f"with {several(there)} labels{', on which the verdict stands' if lacks else ''}"]
    words += [f"not with {several(lacks)}"] if lacks else []
    words += [f"{verdict.name(s)}: FLOPs not recorded" if share is None else f"{percent(share)} of {verdict.name(s)}'s"
              for s, share in shares.items()]  # fmt: skip
    kept = not lacks and not each and (None if None in shares.values() else True)
    return Item(claim, kept, "; ".join(words), each=each)


def _last_step(verdict: Verdict, own: Sequence[str]) -> Item:
    """Of pre-training, and of training on labels; a drift alarm chooses an earlier one by a rule without labels."""
    claim = "Checkpoints are the last step, not the best on test images"
    told = [(verdict.name(start), run) for start in own for run in verdict.runs(start)]
    steps = {f"{name}, seed {run.get('seed')}": [run.get(k) for k in ("exported", "steps", "planned")]
             for name, run in told if not run.get("drift")}  # fmt: skip
    steps |= {s.place.words(): [s.row.get("steps"), s.cost.get("steps")] for s in verdict.scores if s.use == "train"}
    if not told or any(None in each for each in steps.values()):
        return Item(claim, None, "not recorded")
    others = [f"{what}: step {each[0]:,} of {each[-1]:,}" for what, each in steps.items() if len({*each}) > 1]
    alarms = [f"{name}, seed {run.get('seed')}: {run.get('checkpoint')}, the last before its drift alarm"
              for name, run in told if run.get("drift")]  # fmt: skip
    words = f"{len(told)} of {len(told)} pre-trainings" if not alarms else ""
    return Item(claim, not others, "; ".join(filter(None, [*others, *alarms, words if not others else ""])))


def _looked_at(verdict: Verdict) -> list[Item]:
    """What was tuned and failed; files that contradict each other were refused before (``integrity``)."""
    if verdict.from_runs:
        return []
    looked = [
        (check, check.find(verdict), refuses) for part, refuses in ((CLAIMS, True), (TOLD, False)) for check in part
    ]
    return [
        Item(
            check.name, not found, "; ".join(found) or "in all that is recorded", found[0] if refuses and found else ""
        )
        for check, found, refuses in looked
    ]


def _leaks(verdict: Verdict) -> list[Item]:
    """Whether a leak refuses a verdict depends on its size, which ``leaking`` looks at."""
    claim = "No test image among the images to pre-train on, unless declared"
    grouped = verdict.told("data").get("group") is not None
    others = f"No test image among the training images{', and no group on both sides' if grouped else ''}"
    if verdict.leaks is None and verdict.from_runs:
        return [_seen(claim, verdict.about["seen"]), Item(others, None, "each evaluation leaves them out, or says so")]
    if verdict.leaks is None:
        words = "the leak guard has not looked"
        return [Item(claim, None, words, f"{words} for test images in the pool"), Item(others, None, words)]
    pool = pool_leaks(verdict)
    rest = [one for one in verdict.leaking if one not in pool]
    gone = [str(sentence) for sentence in verdict.leaks.get("left_out", [])]
    first = Item(claim, not pool, _sentences(pool, [s for s in gone if "images of the pool" in s]))
    if verdict.about.get("transductive"):
        first = Item(claim, True, "declared: pre-training saw test images, without their labels (--data.transductive)")
    words = _sentences(rest, [s for s in gone if "training images" in s])
    return [first, Item(others, not rest, words + ("" if grouped else "; no groups were named"))]


def _seen(claim: str, seen: Sequence[int | None]) -> Item:
    """What every evaluation of runs has recorded of its network."""
    known = [count for count in seen if count is not None]
    if any(known):
        words = f"{max(known):,} test images were among the images that a network was pre-trained on"
        return Item(claim, False, words, words)
    if len(known) < len(seen):
        words = "of a network it is not known whether it was pre-trained on test images"
        return Item(claim, None, words, words)
    return Item(claim, True, "none, as recorded when each network was judged")


def pool_leaks(verdict: Verdict) -> list[dict[str, Any]]:
    """What the leak guard found of test images themselves, or copies of them, among the images to pre-train on."""
    return [one for one in verdict.leaking if one["between"] == "test-pool" and one["kind"] != "group"]


def _sentences(findings: Sequence[dict[str, Any]], left_out: Sequence[str]) -> str:
    """What the leak guard found, or what it left out."""
    return " ".join(str(one["sentence"]) for one in findings) or "; ".join(left_out) or "the leak guard found none"


def _tuning_labels(verdict: Verdict) -> Item:
    """Options are those of the largest tuning with no more labels."""
    claim = "Labels used for tuning are counted"
    used = sorted({study["labels"] for study in verdict.studies if study["use"] == "train"})
    if not used:
        return Item(claim, None, "no tuning is recorded")
    more = [count for count in used if count > max(verdict.about["labels"])]
    if more:
        return Item(claim, False, f"options were chosen with {several(more)} labels, more than any number stands on")
    return Item(claim, True, f"options were chosen with {several(used)} labels, and used with as many or more")


def _least_draws(verdict: Verdict, uses: Sequence[str]) -> int:
    """Of any method at any number of labels; 0 where none is used so."""
    counts = Counter((s.start, s.use, s.labels) for s in verdict.scores if s.use in uses and not s.matched)
    return min(counts.values(), default=0)
