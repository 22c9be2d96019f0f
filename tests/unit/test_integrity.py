"""Files of a verdict are altered as a cheat or an accident would: each time it is refused or told, by its name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ssl_vit.core.errors import UserError
from ssl_vit.report.findings.contract import Item, broken, check
from ssl_vit.report.findings.integrity import FOLDER
from ssl_vit.report.findings.tuned import CLAIMS
from ssl_vit.report.page.write import open_numbers
from ssl_vit.runs.identity import digest
from ssl_vit.runs.networks import weights_hash

from made_verdict import SMALL, Curves, make_verdict, no_leaks

CURVES: Curves = {
    **SMALL, ("cnn", "train"): (55.0, 82.0), ("random", "knn"): (40.0, 60.0), ("mae", "linear"): (60.0, 75.0),
}  # fmt: skip
LEAK = {"kind": "exact", "between": "test-train", "pairs": 1, "images": 1, "leak": True, "test": [3],
        "sentence": "1 of 40 test images has an exact copy in the training images."}  # fmt: skip


class Files:
    """A verdict's folder in somebody's hands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def edit(self, name: str, change: Callable[[dict[str, Any]], object]) -> None:
        """Changes every JSON file of that name; a protocol keeps its hash, as who edits one would see to."""
        paths = sorted(self.folder.glob(name))
        assert paths, name
        for path in paths:
            told = json.loads(path.read_text())
            change(told)
            if "protocol" in told:
                told["protocol_hash"] = digest(told["protocol"])
            path.write_text(json.dumps(told))

    def about(self, change: Callable[[dict[str, Any]], object]) -> None:
        self.edit("verdict.json", change)

    def result(self, name: str, change: Callable[[dict[str, Any]], object]) -> None:
        self.edit(f"results/{name}.json", change)

    def answers(self, name: str, change: Callable[[dict[str, np.ndarray]], object]) -> None:
        paths = sorted(self.folder.glob(f"results/{name}.npz"))
        assert paths, name
        for path in paths:
            with np.load(path) as file:
                arrays = {key: file[key] for key in file.files}
            change(arrays)
            np.savez(path, **arrays)

    def take(self, name: str) -> None:
        paths = sorted(self.folder.glob(f"results/{name}.*"))
        assert paths, name
        for path in paths:
            path.unlink()

    def copy(self, one: str, other: str) -> None:
        for ending in (".json", ".npz"):
            shutil.copy(self.folder / f"results/{one}{ending}", self.folder / f"results/{other}{ending}")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An honest one, with what its runs keep."""
    folder = make_verdict(
        tmp_path_factory.mktemp("whole") / "v", CURVES, labels=(10, 100), draws=(4, 3), images=40, classes=("a", "b"),
        leaks=no_leaks(), grouped=True,
    )  # fmt: skip
    files = Files(folder)
    for k in range(3):
        place = folder / f"runs/mae-{k}"
        (place / "backbone").mkdir()
        (place / "backbone/model.safetensors").write_bytes(b"weights of %d" % k)
        (place / "backbone/config.json").write_text(json.dumps({"ssl_vit": {"step": 1800}}))
        told = json.loads((folder / "verdict.json").read_text())["methods"]["mae"]["pretraining"][k]
        flops = told["flops"] / told["images"]
        (place / "environment.json").write_text(json.dumps({"flops_per_image": flops, "steps": 1800}))
        own = weights_hash(place / "backbone")
        files.about(lambda a, k=k, own=own: a["methods"]["mae"]["pretraining"][k].update(weights=own))
        for path in folder.glob("results/mae-*.json"):
            if json.loads(path.read_text())["verdict"]["pretraining"] == k:
                files.result(path.stem, lambda r, own=own: r["backbone"].update(weights=own))
    return folder


@pytest.fixture
def files(whole: Path, tmp_path: Path) -> Files:
    shutil.copytree(whole, tmp_path / "v")
    return Files(tmp_path / "v")


def promise(files: Files, claim: str) -> tuple[Item, tuple[str, ...]]:
    """One of the contract, and all reasons to claim nothing."""
    items = check(open_numbers([files.folder]))
    (item,) = [item for item in items if claim in item.claim]
    return item, broken(items)


def test_nothing_is_refused_of_what_was_not_touched(files: Files) -> None:
    items = check(open_numbers([files.folder]))
    assert [item.claim for item in items if not item.kept] == [] and broken(items) == ()


@pytest.mark.parametrize(
    "options",
    [
        {"tuned": 100}, {"longer": None}, {"metric": "balanced", "grouped": True}, {"metric": "auroc"}, {"seeds": 1},
        {"kind": "multilabel", "metric": "average_precision"}, {"kind": "regression", "metric": "r2"},
        {"transductive": True, "leaks": no_leaks(transductive=True)}, {"draws": (1, 1)}, {"labels": (10,)},
    ],
    ids=str,
)  # fmt: skip
def test_honest_ones_of_other_kinds_are_read(tmp_path: Path, options: dict[str, Any]) -> None:
    curves = {key: means[: len(options.get("labels", (10, 100)))] for key, means in CURVES.items()}
    given = {"labels": (10, 100), "draws": (4, 3), "images": 40, "leaks": no_leaks()} | options
    items = check(open_numbers([make_verdict(tmp_path / "v", curves, **given)]))
    tuned = ("best trial", "Searches", "Networks were", "All other", "Linear probes", "last step")
    assert all(item.kept for item in items if any(word in item.claim for word in tuned))


def test_a_folder_that_was_moved_is_the_same(files: Files, tmp_path: Path) -> None:
    files.about(lambda a: [r.update(run=f"/nowhere/{r['run']}") for r in a["methods"]["mae"]["pretraining"]])
    shutil.move(files.folder, tmp_path / "w")
    open_numbers([tmp_path / "w"])


def row(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda r: r["rows"][0].update(changes)


def better(files: Files, name: str, *, predictions: bool) -> None:
    """All test images right, in units and value, perhaps in predictions too."""
    labels = np.array(json.loads((files.folder / "verdict.json").read_text())["test"]["labels"])
    all_right = {"predicted": labels} if predictions else {}
    files.answers(name, lambda a: a.update(units=0 * a["units"] + 100, **all_right))
    files.result(name, row(top1=100.0))


def as_draw(files: Files, number: int, **changes: Any) -> None:
    """The first draw's training of MAE once more, as another one."""
    files.copy("mae-train-10-0", f"mae-train-10-{number}")
    files.result(f"mae-train-10-{number}", lambda r: (r["verdict"].update(draw=number), r.update(changes)))


def quietly(files: Files, line: str, *draws: int) -> None:
    """Takes draws with 10 labels away, from what verdict.json tells of, too."""
    for draw in draws:
        files.take(f"{line.removesuffix('-matched')}-10-{draw}{'-longer' * line.endswith('matched')}")
        files.about(lambda a, d=draw: a["numbers"][line]["10"].remove(d))


def unit(given: Files, key: str, **returned: Any) -> None:
    """What a task returned."""
    (given.folder / "units").mkdir()
    (given.folder / f"units/{key}.json").write_text(json.dumps({"returned": returned, "seconds": 1.0}))


def of_seed(files: Files, seed: int) -> None:
    """All draws of MAE's k-NN on one seed's weights."""
    runs = json.loads((files.folder / "verdict.json").read_text())["methods"]["mae"]["pretraining"]
    files.result("mae-knn-*", lambda r: r["backbone"].update(weights=runs[seed]["weights"]))


def runs_of(change: Callable[[dict[str, Any]], object]) -> Callable[[Files], None]:
    return lambda files: files.about(lambda a: [change(run) for run in a["methods"]["mae"]["pretraining"]])


def costing(files: Files, **factors: float) -> None:
    """The longer baseline, with other costs."""

    def dearer(r: dict[str, Any]) -> None:
        r["verdict"]["cost"].update({key: factor * r["verdict"]["cost"][key] for key, factor in factors.items()})

    files.result("scratch-train-*-longer", dearer)


CONTRADICTIONS: list[tuple[str, str, Callable[[Files], object]]] = [
    ("one file", "are both mae (train) with 10 labels, draw 0",
     lambda f: f.copy("mae-train-10-0", "mae-train-10-0-again")),
    ("every number", "there is no result of mae-train with 10 labels, draw 2",  # the worst of them
     lambda f: f.take("mae-train-10-2")),
    ("every number", "pixels-knn with 100 labels", lambda f: f.take("pixels-knn-100-*")),
    ("every number", "nothing says why there is no mae (train) with 10 labels, draw 1",
     lambda f: quietly(f, "mae-train", 1)),
    ("every number", "nothing says why there is no scratch (train) at the FLOPs of pre-training with 10 labels, draw 1",
     lambda f: quietly(f, "scratch-train-matched", 1)),
    ("every number", "there is no pixels (knn) with 10 labels, draw 0",
     lambda f: quietly(f, "pixels-knn", 0, 1, 2, 3)),
    ("every number", "scratch-train-matched with 10 labels", lambda f: f.take("scratch-train-10-*-longer")),
    ("every number", "mae (train) with 10 labels, draw 3 was not made by this verdict",
     lambda f: as_draw(f, 3, seed=3)),
    ("every number", "draw 3 was not made", lambda f: (  # one more, and said so
        as_draw(f, 3, seed=3), f.about(lambda a: a["numbers"]["mae-train"]["10"].append(3)))),
    ("every number", "was not made", lambda f: f.about(lambda a: a.update(labels=[100]))),  # where it looks better
    ("every number", "cnn (train) with 10 labels, draw 0 was not made",  # a rival that wins
     lambda f: f.about(lambda a: a["methods"].pop("cnn"))),
    ("every number", "pixels (knn)", lambda f: f.about(lambda a: a["methods"]["pixels"].update(uses=[]))),
    ("every number", "damaged or missing (KeyError", lambda f: f.about(lambda a: a.pop("numbers"))),
    ("single tasks", "results/mae-train-10-9.json was made, and is gone",
     lambda f: unit(f, "mae-train-10-9", value=1.0, files=["results/mae-train-10-9.json"])),
    ("single tasks", "mae-train-10-0 returned a value of 12.5", lambda f: unit(f, "mae-train-10-0", value=12.5)),
    ("single tasks", "trial-scratch-10-0 returned a score of 88.0, and it is 60.0 now",
     lambda f: unit(f, "trial-scratch-10-0", score=88.0)),
    ("single tasks", "pretrain-mae-0 returned a flops of 990000000000000.0",
     lambda f: unit(f, "pretrain-mae-0", flops=9.9e14)),
    ("answers beside", "mae-knn-10-0.json has no answers", lambda f: (f.folder / "results/mae-knn-10-0.npz").unlink()),
    ("answers beside", "has no answers", lambda f: f.answers("mae-knn-10-0", lambda a: a.pop("predicted"))),
    ("same test images", "was judged on other test images (easy)",
     lambda f: f.result("mae-*", lambda r: r["protocol"]["test"].update(fingerprint="easy"))),
    ("same test images", "leaves out other test images",
     lambda f: f.answers("mae-*", lambda a: a.update({k: v[:30] for k, v in a.items()}))),
    ("same test images", "leaves out other test images", lambda f: f.result("mae-knn-10-0", row(images=30))),
    ("same test images", "labels of 39 test images", lambda f: f.about(lambda a: a["test"]["labels"].pop())),
    ("same test images", "is about class by balanced",
     lambda f: f.result("mae-knn-*", lambda r: r["protocol"].update(metric="balanced"))),
    ("mean of its answers", "mae-train-10-0.json says 99.5, and its answers",
     lambda f: f.result("mae-train-10-0", row(top1=99.5))),
    ("mean of its answers", "says nan", lambda f: f.result("mae-train-10-0", row(top1=float("nan")))),
    ("mean of its answers", "mae-train-10-0.json says",
     lambda f: f.answers("mae-train-10-0", lambda a: a.update(units=a["units"] * np.nan))),
    ("follow from predictions", "predictions and top1 of single test images differ",
     lambda f: better(f, "mae-train-10-0", predictions=False)),
    ("follow from predictions", "% for ", lambda f: better(f, "mae-train-10-0", predictions=True)),
    ("follow from predictions", "says 100.0 % for a, and its answers",
     lambda f: f.result("mae-knn-100-0", lambda r: r["rows"][0]["per_class"].update(a=100.0))),
    ("follow from predictions", "differ", lambda f: f.about(lambda a: a["test"]["labels"].reverse())),
    ("same groups", "verdict.json has no groups", lambda f: f.about(lambda a: a["test"].update(clusters=None))),
    ("same groups", "has other groups",  # every image for itself: narrower intervals
     lambda f: f.about(lambda a: a["test"].update(clusters=list(range(40))))),
    ("same groups", "has other groups", lambda f: f.answers("mae-*", lambda a: a.pop("clusters"))),
    ("same groups", "leaks.json is of other groups",
     lambda f: f.edit("leaks.json", lambda t: t["of"]["test"].__setitem__(1, "others"))),
    ("same draws", "mae-train-10-1.json was given other labels than",
     lambda f: f.result("mae-train-10-1", lambda r: r["data"].update(train="better ones"))),
    ("same draws", "draws its labels from other training images (more)",
     lambda f: f.result("mae-train-*", lambda r: r["protocol"].update(train="more"))),
    ("same draws", "was given other labels", lambda f: as_draw(f, 1, seed=1)),
    ("own seed", "is called draw 1, and was made with seed 0",
     lambda f: as_draw(f, 1, data={"train": "10 by draw 1"})),
    ("no training counts twice", "mae-train-10-0.json and mae-train-10-1.json hold the same answers",
     lambda f: as_draw(f, 1, seed=1, draw=1, data={"train": "10 by draw 1"})),
    ("no training counts twice", "cnn-train-10-0.json and mae-train-10-0.json hold the same answers",
     lambda f: (shutil.copy(f.folder / "results/mae-train-10-0.npz", f.folder / "results/cnn-train-10-0.npz"),
                f.result("cnn-train-10-0", lambda r: r["rows"][0].update(
                    {k: json.loads((f.folder / "results/mae-train-10-0.json").read_text())["rows"][0][k]
                     for k in ("top1", "per_class")})))),
    ("weights of every", "have the same weights", runs_of(lambda run: run.update(weights="one"))),
    ("weights of every", "pre-trainings of MAE have one seed (0, 0, 0)", runs_of(lambda run: run.update(seed=0))),
    ("weights of every", "is of pre-training 0, and draws take them in turn",
     lambda f: f.result("mae-train-*", lambda r: r["verdict"].update(pretraining=0))),
    ("weights of every", "is of other weights", lambda f: of_seed(f, 1)),  # the best of three
    ("weights of every", "is of other weights",
     lambda f: f.result("mae-knn-10-1", lambda r: r["backbone"].update(seed=0))),
    ("weights of every", "no pre-training of MAE is recorded",
     lambda f: f.about(lambda a: a["methods"]["mae"].update(pretraining=[]))),
    ("pool", "pre-trained on other images (with test images)",
     lambda f: f.result("mae-knn-*", lambda r: r["backbone"].update(pool_fingerprint="with test images"))),
    ("pool", "pre-trained on test images, which verdict.json does not declare",
     lambda f: f.result("mae-knn-*", lambda r: r["backbone"].update(transductive=True))),
    ("pool", "says that pre-training saw 7 test images",
     lambda f: f.result("mae-knn-10-0", lambda r: r.update(test_images_seen_in_pre_training=7))),
    ("leaks.json", "is of other images", lambda f: f.edit("leaks.json", lambda t: t["of"]["pool"].reverse())),
    ("leaks.json", "is of other images", lambda f: f.edit("leaks.json", lambda t: t.pop("of"))),
    ("leaks.json", "lists 1 test images that leak, names 0, and finds 0",  # what was found, taken out by hand
     lambda f: f.edit("leaks.json", lambda t: t.update(affected=[3]))),
    ("leaks.json", "lists 0 test images that leak, names 1, and finds 0",
     lambda f: f.edit("leaks.json", lambda t: t.update(
         affected_images=["a.png"], findings=[LEAK | {"leak": False}]))),
    ("leaks.json", "lists 0 test images that leak, names 0, and finds 1",
     lambda f: f.edit("leaks.json", lambda t: t.update(findings=[LEAK]))),
    ("leaks.json", "differ in whether", lambda f: f.edit("leaks.json", lambda t: t.update(transductive=True))),
    ("one protocol for all probes", "mae-knn-10-0.json follows other rules than random-knn-100-3.json (k 1 -> None)",
     lambda f: f.result("mae-knn-*", lambda r: r["protocol"].update(k=1))),
    ("one protocol for all probes", ", and called one of r",
     lambda f: f.result("*-knn-*", lambda r: r["verdict"].update(
         start={"pixels": "random", "random": "pixels"}.get(r["verdict"]["start"], "mae")))),
    ("FLOPs add up", "FLOPs for an image", lambda f: costing(f, flops=10)),
    ("FLOPs add up", "images in a step", lambda f: costing(f, flops=10, images=10)),
    ("FLOPs add up", "pre-trainings of MAE took",
     lambda f: f.about(lambda a: a["methods"]["mae"]["pretraining"][1].update(flops=1e9))),
    ("runs themselves", "FLOPs, and verdict.json says 1e+09", runs_of(lambda run: run.update(flops=1e9))),
    ("runs themselves", "ended after step 1,800, and verdict.json says 3,600",
     runs_of(lambda run: run.update(steps=3600, planned=3600, exported=3600))),
    ("runs themselves", "after another step", runs_of(lambda run: run.update(planned=900))),
    ("runs themselves", "holds other weights",
     lambda f: shutil.copy(f.folder / "runs/mae-0/backbone/model.safetensors", f.folder / "runs/mae-1/backbone")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "words", "attack"), CONTRADICTIONS)
def test_files_that_contradict_each_other_are_not_read(
    files: Files, name: str, words: str, attack: Callable[[Files], object]
) -> None:
    attack(files)
    with pytest.raises(UserError) as refusal:
        open_numbers([files.folder])
    said = str(refusal.value)
    assert name in said.split(": ")[0] and words in said and "\n" not in said


def test_every_check_has_an_attack_and_is_documented() -> None:
    assert {c.name for c in FOLDER if not any(name in c.name for name, _, _ in CONTRADICTIONS)} == set()
    assert {c.name for c in CLAIMS if not any(name in c.name for name, _, _ in UNFAIR)} == set()
    page = (Path(__file__).resolve().parents[2] / "docs/verdict.md").read_text()
    assert [c.name for c in FOLDER if f"\n| {c.name} | " not in page] == []


def trials(files: Files, start: str, **change: Callable[[float], float]) -> None:
    def edit(about: dict[str, Any]) -> None:
        for study in (s for s in about["tuning"]["studies"] if (s["start"], s["use"]) == (start, "train")):
            for trial in study["trials"]:
                trial.update({key: of(trial[key]) for key, of in change.items()})

    files.about(edit)


def chosen(files: Files, start: str, **told: Any) -> None:
    files.about(lambda a: [s.update(told) for s in a["tuning"]["studies"] if s["start"] == start])


def shorter(r: dict[str, Any]) -> None:
    """Training for half as long, with all that tells of it."""
    cost = r["verdict"]["cost"]
    cost.update({key: cost[key] / 2 for key in ("steps", "planned", "images", "flops")})
    r["rows"][0]["steps"] /= 2


UNFAIR: list[tuple[str, str, Callable[[Files], object]]] = [
    ("best trial", "of the trials of from scratch with 10 labels the best one was not chosen",
     lambda f: chosen(f, "scratch", chosen=0)),
    ("best trial", "from scratch", lambda f: chosen(f, "scratch", chosen=9)),
    ("best trial", "from scratch", lambda f: chosen(f, "scratch", chosen=-1)),
    ("best trial", "of the trials of MAE", lambda f: f.about(
        lambda a: a["tuning"]["studies"][1]["trials"][3].update(score=None))),
    ("Searches", "lr was varied by a factor of 1 only",
     lambda f: trials(f, "scratch", lr=lambda v: 1e-3 * (1 + v / 1e4))),
    ("Searches", "weight decay was varied by a factor of 1.01 only",
     lambda f: trials(f, "scratch", weight_decay=lambda v: 0.3 if v == 0.3 else 0.297)),
    ("Searches", "steps was varied", lambda f: trials(f, "scratch", steps=lambda v: v if v == 800 else 799)),
    ("Searches", "from scratch with 10 labels was one in name",  # half as wide a search as MAE's
     lambda f: trials(f, "mae", lr=lambda v: v * (50 if v == 2e-3 else 1))),
    ("Searches", "the search for MAE with 10 labels was elsewhere than the baseline's: lr around",
     lambda f: trials(f, "scratch", lr=lambda v: v / 1e4)),
    ("Searches", "steps around 566 and around 141", lambda f: trials(f, "scratch", steps=lambda v: v / 4)),
    ("Searches", "from scratch was not tuned with 10 labels, and others were",
     lambda f: f.about(lambda a: a["tuning"]["studies"].pop(0))),
    ("Searches", "tuned twice", lambda f: f.about(lambda a: a["tuning"]["studies"].append(a["tuning"]["studies"][1]))),
    ("All other options", "scratch (train) with 10 labels, draw 0 has other options than cnn (train) with 10 labels",
     lambda f: f.result("scratch-train-10-0", lambda r: r["rows"][0]["trained_with"].update(supervised={"ema": 0}))),
    ("All other options", "pre-training 1 of MAE has other options than pre-training 0 of MAE (fit.epochs 800 -> None)",
     lambda f: f.result("mae-knn-10-1", lambda r: r["backbone"].update(options={"seed": 1, "fit": {"epochs": 800}}))),
    ("Linear probes", "mae (linear) with 10 labels, draw 1: probed with other options",
     lambda f: f.result("mae-linear-10-1", row(rate=100.0))),
    ("Networks were trained", "from scratch with 10 labels, draw 0: trained with another lr (9.0)",
     lambda f: f.result("scratch-train-10-0", lambda r: r["rows"][0]["trained_with"]["optim"].update(lr=9.0))),
    ("Networks were trained", "another weight decay (None)",
     lambda f: f.result("scratch-*", lambda r: r["rows"][0].update(trained_with={"optim": {"lr": 1e-3}}))),
    ("Networks were trained", "trained for other steps than chosen",
     lambda f: f.result("scratch-train-10-?", shorter)),
]  # fmt: skip


@pytest.mark.parametrize(("claim", "words", "attack"), UNFAIR)
def test_of_what_was_not_fair_no_gain_is_claimed(
    files: Files, claim: str, words: str, attack: Callable[[Files], object]
) -> None:
    attack(files)
    item, reasons = promise(files, claim)
    assert item.kept is False and words in item.detail and item.reason in reasons


def test_a_training_that_diverged_is_told(files: Files) -> None:
    quietly(files, "mae-train", 1)
    note = "MAE with 10 labels, draw 1: training diverged, so there is no number"
    files.about(lambda a: a["plan"]["notes"].append(note))
    item, reasons = promise(files, "No training failed")
    assert item.kept is False and item.detail == note and reasons == ()


def test_a_last_draw_that_one_method_lacks_is_told(files: Files) -> None:
    quietly(files, "mae-train", 2)
    item, reasons = promise(files, "fewer numbers")
    assert item.kept is False and item.detail == "mae-train: 2 of 3" and reasons == ()


def test_usual_options_stand_in_where_the_chosen_ones_diverged(files: Files) -> None:
    def usual(r: dict[str, Any]) -> None:
        r["rows"][0]["trained_with"]["optim"] = {"lr": 1e-3, "weight_decay": 0.05, "layer_decay": 0.75}
        shorter(r)

    files.result("mae-train-10-0", usual)
    assert not promise(files, "Networks were trained")[0].kept
    note = "MAE with 10 labels, draw 0: training with the tuned options diverged, so the usual ones were taken"
    files.about(lambda a: a["plan"]["notes"].append(note))
    assert promise(files, "Networks were trained")[0].kept


CLAIM = "Checkpoints are the last step"


def test_the_last_step_is_that_of_the_run(files: Files) -> None:
    for k in range(3):
        files.edit(f"runs/mae-{k}/backbone/config.json", lambda t: t["ssl_vit"].update(step=900))
    runs_of(lambda run: run.update(exported=900))(files)
    item, _ = promise(files, CLAIM)
    assert item.kept is False and item.detail.startswith("MAE, seed 0: step 900 of 1,800; MAE, seed 1")


def test_a_run_that_ended_early_is_told(files: Files) -> None:
    log = files.folder / "runs/mae-2/metrics.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:90]))
    files.edit("runs/mae-2/backbone/config.json", lambda t: t["ssl_vit"].update(step=900))
    files.about(lambda a: a["methods"]["mae"]["pretraining"][2].update(
        steps=900, exported=900, flops=a["methods"]["mae"]["pretraining"][2]["flops"]))  # fmt: skip
    assert promise(files, CLAIM)[0].detail == "MAE, seed 2: step 900 of 1,800"


def test_a_drift_alarm_is_told_and_breaks_nothing(files: Files) -> None:
    files.edit("runs/mae-2/backbone/config.json", lambda t: t["ssl_vit"].update(step=600))
    alarm = {"exported": 600, "drift": {"step": 900, "agreement": 0.1, "cka": 0.2}, "checkpoint": "step 600 of 1,800"}
    files.about(lambda a: a["methods"]["mae"]["pretraining"][2].update(alarm))
    item, reasons = promise(files, CLAIM)
    assert (
        item.kept and item.detail == "MAE, seed 2: step 600 of 1,800, the last before its drift alarm" and not reasons
    )


def test_training_on_labels_that_was_not_finished_is_told(files: Files) -> None:
    files.result("scratch-train-10-0", row(steps=3200))
    item, _ = promise(files, CLAIM)
    assert item.kept is False and item.detail == "scratch (train) with 10 labels, draw 0: step 3,200 of 800"


@pytest.mark.parametrize(
    ("words", "attack"),
    [
        ("has format 1, not format 2: another version wrote it", lambda f: f.about(lambda a: a.update(format=1))),
        ("lacks methods", lambda f: f.about(lambda a: a.pop("methods"))),
        ("was edited: its protocol does not have its protocol_hash",
         lambda f: (f.folder / "results/mae-knn-10-0.json").write_text(
             (f.folder / "results/mae-knn-10-0.json").read_text().replace('"one"', '"other"'))),
        ("is no result of a verdict", lambda f: f.result("mae-knn-10-0", lambda r: r["verdict"].pop("cost"))),
        ("is no result of a verdict", lambda f: f.result("mae-knn-10-0", lambda r: r["rows"][0].pop("top1"))),
        ("cannot be read as JSON", lambda f: (f.folder / "leaks.json").write_text("{")),
        ("mae-knn-10-0.npz is damaged", lambda f: (f.folder / "results/mae-knn-10-0.npz").write_bytes(b"PK")),
    ],
)  # fmt: skip
def test_what_is_no_verdict_of_this_version_is_refused_in_a_line(
    files: Files, words: str, attack: Callable[[Files], object]
) -> None:
    attack(files)
    with pytest.raises(UserError, match=words) as refusal:
        open_numbers([files.folder])
    assert "\n" not in str(refusal.value)
