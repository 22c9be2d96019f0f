"""Whether tuning was more than a name, and networks were trained with what it chose.

Where it was not, the numbers stand, and nobody may say that pre-training wins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from ssl_vit.methods.starts import BASELINE
from ssl_vit.report.findings.integrity import Check, diverged, trainings
from ssl_vit.report.findings.records import Verdict
from ssl_vit.runs.identity import differences

_OPTIONS = ("lr", "weight_decay", "layer_decay")
_FREE: dict[str, tuple[str, ...]] = {
    "optim": ("base_lr", *_OPTIONS), "fit": ("min_steps", "log_every"), "supervised": ("pool", "drop_path"),
    "augment": (),
}  # fmt: skip
"""Options of training on labels that must agree, by group, and those in them that are tuned or follow the network."""
_LEVEL = {"lr": 20.0, "weight_decay": 20.0, "steps": 1.5}
"""By what factor the middle of a search may lie off the baseline's: rates and decays of their own, lengths alike."""
_TRIALS, _SPAN = 4, 2.0
"""From so many trials on, rate, decay and length are tried over at least this factor."""


def _best(verdict: Verdict) -> Iterator[str]:
    for study in verdict.studies:
        scores = [-math.inf if trial["score"] is None else trial["score"] for trial in study["trials"]]
        chosen = study["chosen"]
        if not 0 <= chosen < len(scores) or scores[chosen] != max(scores):
            where = f"{verdict.name(study['start'])} with {study['labels']:,} labels"
            yield f"of the trials of {where} the best one was not chosen"


def _searched(verdict: Verdict) -> Iterator[str]:
    """As wide for one method as for another, and around values that a network can be trained with."""
    for labels, group in groupby(sorted(trainings(verdict), key=lambda s: s["labels"]), key=lambda s: s["labels"]):
        studies = list(group)
        by_start = {study["start"]: study["trials"] for study in studies}
        if len(by_start) < len(studies):
            yield f"one method was tuned twice with {labels:,} labels"
        for start in (start for start in verdict.starts if verdict.of(start, "train") and start not in by_start):
            yield f"{verdict.name(start)} was not tuned with {labels:,} labels, and others were"
        for option, level in _LEVEL.items():
            found = {start: _span([trial[option] for trial in trials]) for start, trials in by_start.items()}
            widest = max(span for span, _ in found.values())
            middle = found.get(BASELINE, (0.0, 0.0))[1]
            for start, (span, centre) in found.items():
                least = max(math.log(_SPAN if len(by_start[start]) >= _TRIALS else 1.01), widest / 2)
                where = f"{verdict.name(start)} with {labels:,} labels"
                if not span >= least - 1e-6:
                    yield (
                        f"the search for {where} was one in name: {option.replace('_', ' ')} was varied by a factor of "
                        f"{math.exp(span):.3g} only"
                    )
                elif BASELINE in found and not abs(centre - middle) <= math.log(level) + 1e-6:
                    yield (
                        f"the search for {where} was elsewhere than the baseline's: {option.replace('_', ' ')} around "
                        f"{math.exp(centre):.3g} and around {math.exp(middle):.3g}"
                    )


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Of the logarithms: how far apart they are, and their middle."""
    logs = np.log(np.asarray(values, dtype=np.float64))
    return float(np.ptp(logs)), float(logs.mean())


def _used(verdict: Verdict) -> Iterator[str]:
    """Trained with what was chosen: from the largest tuning with no more labels, or the usual options below all."""
    lengths: dict[int, dict[str, float]] = {}
    for score in (score for score in verdict.scores if score.use == "train"):
        studies = [study for study in trainings(verdict) if study["start"] == score.start]
        if not studies:
            continue
        fitting = [study for study in studies if study["labels"] <= score.labels]
        study = max(fitting, key=lambda s: s["labels"]) if fitting else studies[0]
        usual, trial = study["trials"][0], study["trials"][study["chosen"] if fitting else 0]
        where = f"{verdict.name(score.start)} with {score.labels:,} labels, draw {score.draw}"
        if diverged(verdict, score.place, "so the usual ones were taken"):
            trial = usual
        own = ((score.row.get("trained_with") or {}).get("optim") or {}) | {"steps": score.row.get("steps")}
        wrong = [name for name in _OPTIONS if not _close(own.get(name), trial[name])]
        if wrong:
            yield f"{where}: trained with another {wrong[0].replace('_', ' ')} ({own.get(wrong[0])}) than was chosen"
        elif not score.matched:
            lengths.setdefault(score.labels, {})[where] = float(own["steps"] or 0) * usual["steps"] / trial["steps"]
    for found in lengths.values():
        first = next(iter(found.values()))
        yield from (
            f"{w}: trained for other steps than chosen" for w, n in found.items() if abs(n - first) > _off(first)
        )


def _alike(verdict: Verdict) -> Iterator[str]:
    """Trainings at one number of labels, but for what is tuned; pre-trainings of one method, but for their seeds."""
    first: dict[object, tuple[str, dict[str, Any]]] = {}

    def other(key: object, name: str, own: dict[str, Any]) -> Iterator[str]:
        before, rules = first.setdefault(key, (name, own))
        if own != rules:
            yield f"{name} has other options than {before} ({differences(own, rules)})"

    for score in verdict.scores:
        made = (score.result.backbone or {}).get("options") or {}
        options = {group: values for group, values in made.items() if group not in ("seed", "data", "eval")}
        yield from other(score.start, f"pre-training {score.pretraining} of {verdict.name(score.start)}", options)
        if score.use == "train":
            told = score.row["trained_with"]
            own = {g: {k: v for k, v in told.get(g, {}).items() if k not in free} for g, free in _FREE.items()}
            statistics = own.get("fit", {}).pop("statistics_batch", None)
            yield from other(score.labels, score.place.words(), own)
            if statistics is not None:  # of networks with batch normalisation only
                one = {"fit": {"statistics_batch": statistics}}
                yield from other((score.labels, "statistics"), score.place.words(), one)


def _probed(verdict: Verdict) -> Iterator[str]:
    chosen = {(s["start"], s["labels"]): s["trials"][s["chosen"]] for s in verdict.studies if s["use"] == "linear"}
    for score in (score for score in verdict.scores if score.use == "linear"):
        trial = chosen[score.start, score.labels]
        if any(score.row[name] != trial[name] for name in ("pool", "rate", "decay")):
            yield f"{score.place.words()}: probed with other options than were chosen inside the labels"


def _off(steps: float) -> float:
    """Half a length is rounded to whole steps."""
    return 2.0 + 0.05 * steps


def _close(one: float | None, other: float) -> bool:
    return one is not None and math.isclose(one, other, rel_tol=1e-6)


def _failed(verdict: Verdict) -> Iterator[str]:
    yield from (note for note in verdict.told("plan").get("notes", []) if "diverged" in note)


def _draws(verdict: Verdict) -> Iterator[str]:
    """Of the longer baseline fewer are planned."""
    for line, own in verdict.about["numbers"].items():
        most = verdict.about["draws"]["train" if "-train" in line else "probes"]
        if (least := min(map(len, own.values()))) < most and not line.endswith("-matched"):
            yield f"{line}: {least} of {most}"


CLAIMS = (
    Check("The best trial was chosen", _best),
    Check("Searches were as wide for every method, around values of one size", _searched),
    Check("Networks were trained with the options that were chosen", _used),
    Check("All other options are the same: of training on labels, and of the seeds of pre-training", _alike),
    Check("Linear probes have the options that were chosen", _probed),
)
"""What nobody may claim a gain without."""
TOLD = (Check("No method has fewer numbers than others", _draws), Check("No training failed", _failed))
"""What is said in the report."""
