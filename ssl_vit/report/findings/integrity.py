"""Whether a verdict's files agree with each other, which is looked at whenever one is read.

Much of a verdict is written down twice: by different hands, or as a whole and as its parts. A folder whose files
contradict each other is not read at all, because nobody can know which of them is right. Who writes all of it anew so
that it fits is not found out: these checks are against accidents and mended numbers, not against forgery.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ssl_vit.configs.metrics import METRICS
from ssl_vit.core.errors import UserError
from ssl_vit.core.reading import json_lines, object_in
from ssl_vit.methods import METHODS
from ssl_vit.methods.starts import BASELINE, titles, untrained
from ssl_vit.report.findings.records import Place, Score, Verdict
from ssl_vit.runs.identity import differences
from ssl_vit.runs.networks import weights_hash
from ssl_vit.statistics.contributions import accuracy_units, balanced_units

_PUBLIC = "public"


class Check(NamedTuple):
    """Something that is to be so."""

    name: str
    lacks: Callable[[Verdict], Iterator[str]]
    """A sentence for everything that is not."""

    def find(self, verdict: Verdict) -> list[str]:
        """All of them; what cannot be looked at, because it is missing or something else, is not so either."""
        try:
            return list(self.lacks(verdict))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OSError) as error:
            return [f"what it looks at is damaged or missing ({type(error).__name__}: {error})"]


def sound(verdict: Verdict) -> Verdict:
    """The verdict, unless its files contradict each other.

    Raises:
        UserError: What does, by the name of the check.
    """
    for check in FOLDER:
        if found := check.find(verdict):
            more = f" (and {len(found) - 1:,} more)" if len(found) > 1 else ""
            raise UserError(
                f"{verdict.folder} is not read, its files contradict each other; {check.name}: {found[0]}{more}; "
                "take away what was changed or added, and run eval/verdict.py again, which makes what is missing"
            )
    return verdict


def _once(verdict: Verdict) -> Iterator[str]:
    there: dict[Any, Score] = {}
    for score in verdict.scores:
        if (other := there.setdefault(score.place, score)) is not score:
            yield f"{other.result.path.name} and {score.result.path.name} are both {score.place.words()}"


def _complete(verdict: Verdict) -> Iterator[str]:
    """As many as when the verdict was written; of draws in between, and whole methods, none is missing unexplained."""
    told, labels = verdict.about["numbers"], verdict.about["labels"]
    noted = {(line, int(n), draw) for line, own in told.items() for n, draws in own.items() for draw in draws}
    there = {(score.place.line, score.labels, score.draw): score.place for score in verdict.scores}
    uses = {(start, use) for start, method in verdict.methods.items() for use in method["uses"]}
    for line, n, draw in sorted(noted - there.keys()):
        yield f"there is no result of {line} with {n:,} labels, draw {draw}"
    for key, place in there.items():
        made = verdict.about["draws"]["train" if place.use == "train" else "probes"]
        known = key in noted and (place.start, place.use) in uses and place.labels in labels
        if not known or not 0 <= place.draw < made:
            yield f"{place.words()} was not made by this verdict"
    wanted = [(start, use, False, n) for start, use in sorted(uses) for n in labels]
    wanted += [(start, use, True, n) for start, use in sorted(uses) for n in labels if n in _counts(told, start, use)]
    for start, use, matched, n in wanted:
        draws = _counts(told, start, use, matched=matched).get(n, [])
        for draw in sorted(set(range(max(draws, default=0) + 1)) - {*draws}):
            place = Place(start, use, n, draw, matched)
            if not diverged(verdict, place, "so there is no number"):
                yield f"nothing says why there is no {place.words()}"


def _counts(numbers: dict[str, Any], start: str, use: str, *, matched: bool = True) -> dict[int, list[int]]:
    """Draws of a method by its numbers of labels; usually of the longer baseline."""
    return {int(n): draws for n, draws in numbers.get(Place(start, use, 0, 0, matched).line, {}).items()}


def diverged(verdict: Verdict, place: Place, so: str) -> bool:
    """Whether a note of the training says that it diverged, and what became of that."""
    where = f"{verdict.name(place.start)} with {place.labels:,} labels, draw {place.draw}"
    where += ", at" if place.matched else ":"
    return any(note.startswith(where) and note.endswith(so) for note in verdict.told("plan").get("notes", []))


def trainings(verdict: Verdict) -> list[dict[str, Any]]:
    """Searches for the options of training all weights."""
    return [study for study in verdict.studies if study["use"] == "train"]


def _units(verdict: Verdict) -> Iterator[str]:
    """What single tasks returned, where that is still there: their files, values, trials, costs of pre-training."""
    now: dict[str, dict[str, Any]] = {score.result.path.stem: {"value": score.value} for score in verdict.scores}
    now |= {f"trial-{s['start']}-{s['labels']}-{j}": t for s in trainings(verdict) for j, t in enumerate(s["trials"])}
    now |= {f"pretrain-{start}-{k}": run for start in verdict.methods for k, run in enumerate(verdict.runs(start))}
    for path in sorted((verdict.folder / "units").glob("*.json")):
        returned, own = _told(path)["returned"], now.get(path.stem, {})
        gone = [name for name in returned.get("files", ()) if not (verdict.folder / name).exists()]
        yield from (f"{name} was made, and is gone" for name in gone[:1])
        for name in ("value", "score", "steps", "images", "flops"):
            if name in own and name in returned and returned[name] != own[name]:
                yield f"{path.stem} returned a {name} of {returned[name]}, and it is {own[name]} now"


def _answered(verdict: Verdict) -> Iterator[str]:
    for score in verdict.scores:
        if score.units is None or (verdict.about["kind"] == "class" and score.predicted is None):
            yield f"{score.result.path.name} has no answers of single test images beside it"


def _value(verdict: Verdict) -> Iterator[str]:
    for score in verdict.scores:
        units = np.asarray(score.units, dtype=np.float64)
        if not abs(score.value - units.mean()) <= 1e-5 * max(abs(score.value), np.abs(units).max()):
            yield f"{score.result.path.name} says {score.value:.6g}, and its answers {units.mean():.6g}"


def _right(verdict: Verdict) -> Iterator[str]:
    """Units of accuracies, and recalls of classes, follow from what was predicted."""
    about, metric = verdict.about, verdict.about["metric"]
    if about["kind"] != "class":
        return
    truth = np.asarray(about["test"]["labels"])
    for score in verdict.scores:
        hits = np.asarray(score.predicted) == truth
        units = accuracy_units(hits) if metric == "top1" else balanced_units(hits, truth)
        if METRICS[metric].per_image and not np.allclose(np.asarray(score.units), units, rtol=1e-5, atol=1e-3):
            yield f"{score.result.path.name}: predictions and {metric} of single test images differ"
        for i, name in enumerate(about["classes"]):
            told, own = (score.row.get("per_class") or {}).get(name), hits[truth == i]
            if told is not None and not abs(told - 100 * own.mean()) <= 1e-3:
                yield f"{score.result.path.name} says {told:.1f} % for {name}, and its answers {100 * own.mean():.1f} %"


def _test_images(verdict: Verdict) -> Iterator[str]:
    about, data = verdict.about, verdict.about["data"]
    positions = about["test"].get("positions")
    kept = np.arange(data["test"]) if positions is None else np.asarray(positions)
    labels = about["test"]["labels"]
    if labels is not None and len(labels) != len(kept):
        yield f"verdict.json has labels of {len(labels):,} test images, and {len(kept):,} were judged"
    for score in verdict.scores:
        name, own = score.result.path.name, score.result.protocol
        if own["test"]["fingerprint"] != data["fingerprints"]["test"] or own["test"]["images"] != data["test"]:
            yield f"{name} was judged on other test images ({own['test']['fingerprint']})"
        elif (own["kind"], own["metric"]) != (about["kind"], about["metric"]):
            yield f"{name} is about {own['kind']} by {own['metric']}"
        elif not np.array_equal(score.answers["positions"], kept) or score.row["images"] != len(kept):
            yield f"{name} leaves out other test images than verdict.json says"


def _groups(verdict: Verdict) -> Iterator[str]:
    about = verdict.about
    if not METRICS[about["metric"]].per_image:  # units are blocks of whole groups
        return
    told = about["test"]["clusters"]
    if about["data"].get("group") is not None and told is None:
        yield f"test images are grouped by {about['data']['group']}, and verdict.json has no groups"
    known = ((verdict.leaks or {}).get("of") or {}).get("test", [None, None])[1]
    if known and told and about["test"]["positions"] is None and known != _digest(np.asarray(told, dtype=np.int64)):
        yield "leaks.json is of other groups of test images than verdict.json"
    for score in verdict.scores:
        own = score.answers.get("clusters")
        if (own is None) != (told is None) or (own is not None and not np.array_equal(own, np.asarray(told))):
            yield f"{score.result.path.name} has other groups of test images than verdict.json"


def _labels(verdict: Verdict) -> Iterator[str]:
    """Numbers of one draw stand on the same labels, whatever the method."""
    given: dict[tuple[int, int], Score] = {}
    for score in verdict.scores:
        path, protocol = score.result.path.name, score.result.protocol
        if protocol["train"] != verdict.about["data"]["fingerprints"]["train"]:
            yield f"{path} draws its labels from other training images ({protocol['train']})"
        first = given.setdefault((score.labels, score.draw), score)
        if first.result.data["train"] != score.result.data["train"]:
            yield f"{path} was given other labels than {first.result.path.name}"


def _seeded(verdict: Verdict) -> Iterator[str]:
    for score in verdict.scores:
        if score.result.seed != score.draw or score.result.draw not in (None, score.draw):
            yield f"{score.result.path.name} is called draw {score.draw}, and was made with seed {score.result.seed}"


def _copies(verdict: Verdict) -> Iterator[str]:
    """Two trainings never answer alike to the last digit, but a longer baseline that is as long as the usual one."""
    there: dict[str, Score] = {}
    for score in (score for score in verdict.scores if score.use == "train" and "confidence" in score.answers):
        answers = score.answers["confidence"]
        if np.ptp(answers) == 0:  # a network that says the same of all
            continue
        other = there.setdefault(_digest(answers), score)
        if other.place[:4] != score.place[:4]:
            yield f"{other.result.path.name} and {score.result.path.name} hold the same answers to the last digit"


def _digest(values: np.ndarray) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()[:16]


def _made(start: str) -> bool:
    """Whether a method pre-trained it here, on whatever network (``mae@cnn``)."""
    return start.partition("@")[0] in METHODS


def _weights(verdict: Verdict) -> Iterator[str]:
    seen: dict[str, str] = {}
    for start in verdict.methods:
        runs = verdict.runs(start)
        for run in (run for run in runs if not run.get("drift")):  # which may leave the weights it began with
            if (other := seen.setdefault(run["weights"], run["run"])) is not run["run"]:
                yield f"{other} and {run['run']} have the same weights ({run['weights']})"
        seeds = [run["seed"] for run in runs if _made(start)]
        if len(set(seeds)) < len(seeds):
            yield f"pre-trainings of {verdict.name(start)} have one seed ({', '.join(map(str, seeds))})"
        if _made(start) and not runs:
            yield f"no pre-training of {verdict.name(start)} is recorded"
    for score in verdict.scores:
        runs, name = verdict.runs(score.start), score.result.path.name
        if score.pretraining != (score.draw % len(runs) if runs else None):
            yield f"{name}, draw {score.draw}, is of pre-training {score.pretraining}, and draws take them in turn"
        elif runs:
            run, own = runs[score.draw % len(runs)], score.result.backbone or {}
            if (own.get("weights"), own.get("seed")) != (run["weights"], run["seed"]):
                weights = own.get("weights")
                yield f"{name} is of other weights ({weights}) than pre-training {score.pretraining} ended with"


def _pool(verdict: Verdict) -> Iterator[str]:
    about = verdict.about
    for score in (score for score in verdict.scores if _made(score.start)):
        own, name = score.result.backbone or {}, score.result.path.name
        if own.get("pool_fingerprint") != about["data"]["fingerprints"]["pool"]:
            yield f"{name} is of a network that was pre-trained on other images ({own.get('pool_fingerprint')})"
        if own.get("transductive") and not about["transductive"]:
            yield f"{name} is of a network that was pre-trained on test images, which verdict.json does not declare"
        if score.seen and not about["transductive"] and not any(o["between"] == "test-pool" for o in verdict.leaking):
            yield f"{name} says that pre-training saw {score.seen:,} test images, and leaks.json knows of none"


def _leaks(verdict: Verdict) -> Iterator[str]:
    if verdict.leaks is None:  # the contract has words for that
        return
    of = {name: prints[0] for name, prints in (verdict.leaks.get("of") or {}).items()}
    if of != verdict.about["data"]["fingerprints"]:
        yield "leaks.json is of other images than the verdict"
    if bool(verdict.leaks["transductive"]) != bool(verdict.about["transductive"]):
        yield "leaks.json and verdict.json differ in whether test images in the pool are declared"
    found = {position for one in verdict.leaking for position in one["test"]}
    listed, named = (len(verdict.leaks[part]) for part in ("affected", "affected_images"))
    if found != {*verdict.leaks["affected"]} or listed != named:
        yield f"leaks.json lists {listed:,} test images that leak, names {named:,}, and finds {len(found):,}"


def _probes(verdict: Verdict) -> Iterator[str]:
    """A network of another kind may read another size of image; all else is the same."""
    network, known = verdict.methods[BASELINE].get("architecture_hash"), titles()
    for score in (score for score in verdict.scores if score.start in untrained()):
        if score.row["method"] != known[score.start]:
            yield f"{score.result.path.name} is of {score.row['method']}, and called one of {known[score.start]}"
    for use in ("knn", "linear"):
        scores = sorted((s for s in verdict.scores if s.use == use), key=lambda s: verdict.starts.index(s.start))
        alike = [s for s in scores if verdict.methods[s.start].get("architecture_hash") in (None, network)]
        for group, free in ((alike, ""), (scores, "view")):
            for score in group:
                own, other = ({**one.result.protocol, free: None} for one in (score, group[-1]))
                if own != other:
                    names = f"{score.result.path.name} follows other rules than {group[-1].result.path.name}"
                    yield f"{names} ({differences(own, other)})"


def _costs(verdict: Verdict) -> Iterator[str]:
    """An image costs one network the same in every training, and a batch is as large for all."""
    scores, first = [s for s in verdict.scores if s.use == "train"], dict[Any, float]()
    for score in (s for s in scores if s.cost["flops"] and s.start != _PUBLIC):  # that may read other sizes
        flops = score.cost["flops"] / score.cost["images"]
        other = first.setdefault(verdict.methods[score.start]["architecture_hash"] or score.start, flops)
        if not math.isclose(flops, other, rel_tol=0.01):
            yield f"{score.place.words()} took {flops:.3g} FLOPs for an image, and others of its network {other:.3g}"
    batches: dict[int, float] = {}
    for score in scores:
        batch = score.cost["images"] / score.cost["steps"]
        if batches.setdefault(score.labels, batch) != batch:
            yield f"{score.place.words()} saw {batch:g} images in a step, and others {batches[score.labels]:g}"
    for start in verdict.methods:
        each = [run["flops"] / run["images"] for run in verdict.runs(start) if run.get("flops")]
        if each and not math.isclose(min(each), max(each), rel_tol=0.01):
            yield f"pre-trainings of {verdict.name(start)} took {min(each):.3g} to {max(each):.3g} FLOPs for an image"


def _runs(verdict: Verdict) -> Iterator[str]:
    """What is still there of pre-training runs, also where the verdict's folder was moved."""
    for run in (run for start in verdict.methods if _made(start) for run in verdict.runs(start)):
        place = verdict.folder / "runs" / Path(run["run"]).name
        if not place.is_dir():
            place = Path(run["run"])  # made before this verdict
        if not place.is_dir() or not (place.is_absolute() or place.is_relative_to(verdict.folder)):
            continue  # a relative path is of where the command was given
        lines = json_lines(place / "metrics.jsonl").whole
        told, about = _told(place / "environment.json"), _told(place / "backbone/config.json").get("ssl_vit", {})
        if lines and (step := lines[-1].get("step")) != run["steps"]:
            ended = f"{step:,}" if isinstance(step, int) else step
            yield f"{place} ended after step {ended}, and verdict.json says {run['steps']:,}"
        if told.get("steps", run["planned"]) != run["planned"] or about.get("step", run["exported"]) != run["exported"]:
            yield f"{place} was to end, or was exported, after another step than verdict.json says"
        flops, noted = (told.get("flops_per_image") or 0.0) * run["images"], run["flops"] or 0.0
        if not math.isclose(flops, noted, rel_tol=0.01) and flops:
            yield f"{place} took {flops:.3g} FLOPs, and verdict.json says {noted:.3g}"
        if about and (own := weights_hash(place / "backbone")) != run["weights"]:
            yield f"{place} holds other weights ({own}) than it ended with ({run['weights']})"


def _told(path: Path) -> dict[str, Any]:
    return object_in(path) or {}


FOLDER = (
    Check("one file for every number", _once),
    Check("every number that was made", _complete),
    Check("what single tasks returned", _units),
    Check("answers beside every number", _answered),
    Check("the same test images", _test_images),
    Check("a number is the mean of its answers", _value),
    Check("answers follow from predictions", _right),
    Check("the same groups of test images", _groups),
    Check("the same draws of labels for all", _labels),
    Check("every draw has its own seed", _seeded),
    Check("no training counts twice", _copies),
    Check("weights of every pre-training seed", _weights),
    Check("the pool that was pre-trained on", _pool),
    Check("leaks.json of the same images", _leaks),
    Check("one protocol for all probes", _probes),
    Check("FLOPs add up", _costs),
    Check("what the runs themselves recorded", _runs),
)
"""What makes a folder be read or not; earlier ones may be relied on by later ones."""
