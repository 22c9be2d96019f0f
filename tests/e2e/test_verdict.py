"""The verdict as a user gets it: made once, continued, reproduced number by number, and clear about bad input."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from ssl_vit.configs import DataConfig
from ssl_vit.configs.data import LabelledDataConfig
from ssl_vit.data.sources.opening import open_labelled

ROOT = Path(__file__).resolve().parents[2]
SHORT = [
    "--data.path", "images",
    "--verdict.labels", "[10]", "--verdict.seeds", "1", "--verdict.train_draws", "2", "--verdict.probe_draws", "2",
    "--verdict.trials", "2", "--verdict.length", "0.02", "--verdict.pretraining", "0.02",
    "--verdict.matched_draws", "2", "--verdict.budget", "1d", "--run.dir", "v",
]  # fmt: skip
METHODS = ["--verdict.methods", "mae,random,pixels"]
TINY = [
    "--model.width", "16", "--model.depth", "1", "--model.heads", "2", "--model.img_size", "16",
    "--model.patch_size", "8",
]  # fmt: skip


def save_images(folder: Path, counts: dict[str, int], seed: int = 0, side: int = 16) -> None:
    rng = np.random.default_rng(seed)
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            Image.fromarray(rng.integers(0, 256, (side, side), dtype=np.uint8)).save(folder / name / f"{i:02d}.png")


@pytest.fixture(scope="module")
def verdict(tmp_path_factory: pytest.TempPathFactory, launched) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("verdict")
    save_images(folder / "images", {"a": 60, "b": 60}, side=8)
    test = open_labelled(DataConfig(path=str(folder / "images")), LabelledDataConfig()).test
    Path(test.where(3)).write_bytes(b"")  # one test image cannot be read
    done = launched("eval/verdict.py", *SHORT, *METHODS, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, done


def told(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def test_one_command_makes_everything(verdict) -> None:
    folder, done = verdict
    made = folder / "v"
    for name in ("report.html", "report.md", "verdict.json", "leaks.json", "plan.json", "pictures/pictures.json"):
        assert (made / name).stat().st_size > 0
    about = told(made / "verdict.json")
    assert about["labels"] == [10, 96]
    assert about["draws"] == {"probes": 2, "train": 2}
    both = {"10": [0, 1], "96": [0, 1]}
    assert about["numbers"]["mae-knn"] == both
    assert about["numbers"]["scratch-train-matched"] == {"96": [0, 1]}  # where options are tuned, and it counts
    (run,) = about["methods"]["mae"]["pretraining"]
    last = json.loads((made / "runs/mae-0/metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert run["steps"] == run["planned"] == run["exported"] == last and run["drift"] is None
    assert (about["data"]["test"], about["data"]["unreadable"]) == (24, 1)
    assert len(about["test"]["labels"]) == len(about["test"]["names"]) == 23
    assert about["test"]["positions"] == [i for i in range(24) if i != 3]  # what the leak guard counts by
    results = {path.stem for path in (made / "results").glob("*.json")}
    for draw in (0, 1):
        for labels in (10, 96):
            for method in ("scratch-train", "mae-train", "mae-knn", "mae-linear", "pixels-knn",
                           "random-linear"):  # fmt: skip
                assert f"{method}-{labels}-labels-draw-{draw}" in results
        assert f"scratch-train-matched-96-labels-draw-{draw}" in results
    assert len(results) == 2 * 2 * 8 + 2
    assert results == {path.stem for path in (made / "results").glob("*.npz")}
    assert re.search(r"With 10 to 96 labels: |With 10 labels: (.|\n)*With 96 labels: ", done.stdout)
    assert "Report: v/report.html" in done.stdout
    assert not list((made / "work").iterdir())
    assert not list(made.rglob("*.lock"))
    trained = told(made / "runs" / "mae-trained" / "classifier" / "config.json")
    assert trained["num_classes"] == 2


def test_the_baseline_is_treated_as_fine_tuning_is(verdict) -> None:
    made = verdict[0] / "v"
    scratch, mae = (told(made / "results" / f"{s}-train-96-labels-draw-1.json") for s in ("scratch", "mae"))
    assert scratch["protocol_hash"] == mae["protocol_hash"]
    options = [result["rows"][0]["trained_with"] for result in (scratch, mae)]
    assert options[0]["augment"] == options[1]["augment"]
    assert options[0]["supervised"] == options[1]["supervised"]
    assert all(scratch["data"][name] == mae["data"][name] for name in ("train", "test", "split"))
    about = told(made / "verdict.json")
    assert about["methods"]["scratch"]["architecture_hash"] == about["methods"]["mae"]["architecture_hash"]
    trials = {(s["start"], s["labels"]): len(s["trials"]) for s in about["tuning"]["studies"] if s["use"] == "train"}
    # 10 labels, five of a class, leave too few to choose by.
    assert trials == {(s, 96): 2 for s in ("scratch", "mae")}
    cost = [told(made / "results" / f"{name}.json")["verdict"]["cost"] for name in
            ("scratch-train-matched-96-labels-draw-0", "mae-train-96-labels-draw-0")]  # fmt: skip
    pre = about["methods"]["mae"]["pretraining"][0]["flops"]
    both = cost[1]["flops"] + pre
    assert both <= cost[0]["flops"] * (1 + 1e-9) < 1.05 * both  # whole steps: up to one more


def test_nothing_finished_is_repeated_and_what_is_missing_is_the_same_again(verdict, script, monkeypatch) -> None:
    made = verdict[0] / "v"
    monkeypatch.chdir(verdict[0])
    lost = "mae-train-10-labels-draw-1"
    before = told(made / "results" / f"{lost}.json")["rows"], (made / "results" / f"{lost}.npz").read_bytes()
    for path in (made / "results" / f"{lost}.json", made / "results" / f"{lost}.npz"):
        path.unlink()  # as the report advises where they are damaged
    torn = made / "work" / lost  # killed while it was removed
    torn.mkdir()
    (torn / "environment.json").write_text("{}")
    finished = [p for name in ("units", "results", "runs/mae-0") for p in (made / name).glob("*") if p.is_file()]
    finished.remove(made / "units" / f"{lost}.json")
    old = {path: path.stat().st_mtime_ns for path in finished}
    status, _, err = script("eval/verdict.py", *SHORT, *METHODS, "--verdict.jobs", "0")
    assert status == 0, err
    assert {path: path.stat().st_mtime_ns for path in finished} == old
    again = told(made / "results" / f"{lost}.json")["rows"], (made / "results" / f"{lost}.npz").read_bytes()
    assert again == before
    assert told(made / "verdict.json")["plan"]["sessions"] == 2
    status, _, err = script("eval/verdict.py", *SHORT, *METHODS, "--seed", "5")
    assert status == 1
    assert "already holds a run with another config (seed 0 -> 5)" in err


NUMBERS = [
    "mae-train-10-labels-draw-1", "scratch-train-10-labels-draw-1", "mae-knn-10-labels-draw-1",
    "mae-linear-96-labels-draw-1", "pixels-linear-10-labels-draw-1", "random-knn-10-labels-draw-1",
]  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS)
def test_the_command_beside_a_number_gives_it(verdict, script, monkeypatch, tmp_path: Path, number: str) -> None:
    folder = verdict[0]
    monkeypatch.chdir(folder)
    result = told(folder / "v" / "results" / f"{number}.json")
    words = shlex.split(result["verdict"]["command"], comments=True)
    assert words[:2] == ["accelerate", "launch"]
    status, _, err = script(*words[2:], "--run.dir", str(tmp_path / "again"))
    assert status == 0, err
    rows = told(next((tmp_path / "again" / "results").glob("*.json")))["rows"]
    rows = [row for row in rows if row.get("headline", True)]
    name = {"pixels": "raw pixels", "random": "random weights"}.get(number.partition("-")[0])
    row = rows[0] if name is None else next(r for r in reversed(rows) if r["method"] == name)
    assert row["top1"] == result["rows"][0]["top1"]


def test_the_report_is_made_again_without_torch(verdict, tmp_path: Path) -> None:
    folder = verdict[0]
    words = [str(ROOT / "eval" / "report.py"), "v", "--out", str(tmp_path / "again")]
    program = (
        "import runpy, sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.partition('.')[0] in ('torch', 'timm', 'sklearn', 'accelerate', 'datasets'):\n"
        "            raise ModuleNotFoundError(name)\n"
        f"sys.meta_path.insert(0, Absent()); sys.argv = {words!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for name in ("report.html", "report.md"):
        assert (tmp_path / "again" / name).read_text() == (folder / "v" / name).read_text()


ELSEWHERE = [
    "--data.path", "images", "--verdict.methods", "pixels", "--verdict.labels", "[48]", "--verdict.seeds", "1",
    "--verdict.train_draws", "1", "--verdict.probe_draws", "1", "--verdict.trials", "1", "--verdict.matched_draws", "0",
    "--verdict.length", "0.02", "--verdict.budget", "1d", "--verdict.jobs", "2",
]  # fmt: skip


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, launched) -> Path:
    """A small verdict made by one process of this machine."""
    folder = tmp_path_factory.mktemp("here")
    save_images(folder / "images", {"a": 30, "b": 30}, side=8)
    done = launched("eval/verdict.py", *ELSEWHERE, *TINY, "--verdict.jobs", "0", "--run.dir", "v", cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("executor", [["submitit", "--verdict.job", "[cluster=local,timeout_min=60]"], ["ray"]])
def test_an_engine_makes_the_same_numbers(executor: list[str], here: Path, launched) -> None:
    words = [*ELSEWHERE, *TINY, "--run.dir", executor[0], "--verdict.executor", *executor]
    for _ in range(5):
        done = launched("eval/verdict.py", *words, cwd=here)
        if "Ray cannot be reached or started" not in done.stderr:  # it gives up where the machine is busy
            break
    assert done.returncode == 0, done.stderr[-3000:]
    expected, made = here / "v" / "results", here / executor[0] / "results"
    names = sorted(path.name for path in expected.iterdir())
    assert names == sorted(path.name for path in made.iterdir())
    for name in names:
        if name.endswith(".json"):
            assert told(made / name)["rows"] == told(expected / name)["rows"]
        else:
            assert (made / name).read_bytes() == (expected / name).read_bytes()
    units = {path: path.stat().st_mtime_ns for path in (here / executor[0] / "units").iterdir()}
    again = launched("eval/verdict.py", *words, cwd=here)
    assert again.returncode == 0, again.stderr[-3000:]
    assert {path: path.stat().st_mtime_ns for path in (here / executor[0] / "units").iterdir()} == units


def test_networks_and_public_weights_on_images_that_leak(script, launched, tmp_path: Path) -> None:
    save_images(tmp_path / "images" / "train", {"a": 42, "b": 42})
    save_images(tmp_path / "images" / "test", {"a": 12, "b": 12}, seed=1)
    copied = tmp_path / "images" / "train" / "a" / "00.png"
    copied.write_bytes((tmp_path / "images" / "test" / "b" / "03.png").read_bytes())
    status, _, err = script("recipes/mae.py", "--data.path", "images", "--fit.epochs", "1", "--run.dir", "run", *TINY)
    assert status == 0, err
    words = [*SHORT, *TINY, "--verdict.networks", "vit,hybrid", "--verdict.methods", "lejepa,public,pixels",
             "--verdict.public", "run/backbone", "--verdict.trials", "1", "--verdict.jobs", "0"]  # fmt: skip
    done = launched("eval/verdict.py", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    made = tmp_path / "v"
    about = told(made / "verdict.json")
    # The image that shows a test image is left out, and the verdict goes on.
    assert (about["data"]["pool"], about["data"]["train"], about["data"]["test"]) == (83, 83, 24)
    leaks = told(made / "leaks.json")
    assert (leaks["affected"], leaks["findings"]) == ([], [])
    assert "test image" not in " ".join(
        item for item in (made / "report.md").read_text().splitlines() if "refused" in item
    )
    starts = {"lejepa", "lejepa@hybrid", "lejepa@public", "public", "scratch", "hybrid", "pixels"}
    assert set(about["methods"]) == starts and not about["left_out"]
    assert about["methods"]["lejepa@hybrid"]["network"].startswith("hybrid_m")
    results = {path.stem for path in (made / "results").glob("*.json")}
    trained = {f"{s}-train-83-labels-draw-0" for s in starts - {"pixels"}}
    probed = {f"{s}-{use}-10-labels-draw-1" for s in starts - {"scratch", "hybrid"} for use in ("knn", "linear")}
    assert trained | probed | {f"{s}-train-matched-83-labels-draw-1" for s in ("scratch", "hybrid")} <= results
    runs = about["methods"]["lejepa@public"]["pretraining"]
    assert len(runs) == 1 and "--model.weights" in runs[0]["command"]
    flops = [told(made / "results" / f"{name}-83-labels-draw-0.json")["verdict"]["cost"]["flops"]
             for name in ("hybrid-train-matched", "lejepa@hybrid-train")]  # fmt: skip
    assert flops[0] >= flops[1] + about["methods"]["lejepa@hybrid"]["pretraining"][0]["flops"]
    assert (made / "report.html").exists()


def test_a_budget_that_is_too_short_is_refused_by_name(script, tmp_path: Path) -> None:
    save_images(tmp_path / "images", {"a": 30, "b": 30})
    words = ["--data.path", "images", "--run.dir", "v", *PLAN, "--verdict.methods", "mae", "--verdict.budget", "5s"]
    status, _, err = script("eval/verdict.py", *words)
    assert status == 1
    assert "--verdict.budget: 5 s is too short to recommend anything" in err
    assert "by counting, the least that can takes " in err and "; give more than " in err
    assert not (tmp_path / "v").exists()  # nothing was looked for, measured or planned


PLAN = ["--verdict.plan_only", "true", "--verdict.jobs", "0", "--verdict.methods", "pixels", *TINY]


@pytest.mark.quick
def test_a_class_with_one_image_and_shares_below_a_label_per_class(script, tmp_path: Path) -> None:
    save_images(tmp_path / "images", {"a": 30, "b": 30, "rare": 1})
    status, out, err = script(
        "eval/verdict.py",
        "--data.path",
        "images",
        "--verdict.shares",
        "[2,50]",
        "--run.dir",
        "v",
        *PLAN,
        "--verdict.methods",
        "pixels,cnn",
    )
    assert status == 0, err
    assert "labels    24, 49;" in out
    assert "2 % of 49 labels would be 1, fewer than one for each of the 3 classes; left out" in out
    assert "rare has one image and is never judged" in out
    assert "CNN from scratch" in out


def test_labels_that_are_missing(script, tmp_path: Path) -> None:
    save_images(tmp_path / "flat", {".": 12})
    status, _, err = script("eval/verdict.py", "--data.path", "flat", *PLAN)
    assert status == 1
    assert "labels are needed, but flat has none" in err


@pytest.mark.quick
def test_a_pool_that_holds_the_test_images(script, tmp_path: Path) -> None:
    save_images(tmp_path / "labelled" / "train", {"a": 10, "b": 10})
    save_images(tmp_path / "labelled" / "test", {"a": 5, "b": 5}, seed=1)
    pool = tmp_path / "pool"
    pool.mkdir()
    for i, path in enumerate(sorted((tmp_path / "labelled").rglob("*.png"))):
        (pool / f"{i:03d}.png").write_bytes(path.read_bytes())
    words = ["--data.path", "pool", "--eval.data.path", "labelled", "--run.dir", "v", *PLAN]
    status, _, err = script("eval/verdict.py", *words, "--data.on_leak", "stop")
    assert status == 1
    assert "10 of 10 test images leak: 10 as exact copies among the images of the pool" in err
    assert "(all in v/leaks.html)" in err
    assert "--data.on_leak warn" in err
    page = (tmp_path / "v" / "leaks.html").read_text()
    assert all(str(path.relative_to(tmp_path)) in page for path in (tmp_path / "labelled" / "test").rglob("*.png"))
    assert not (tmp_path / "v" / "units").exists()
    status, out, err = script("eval/verdict.py", *words, "--data.transductive", "true", "--data.on_leak", "warn")
    assert status == 0, err
    assert "declared" in out
    assert not (tmp_path / "v" / "leaks.html").exists()
    words[words.index("v")] = "w"
    status, out, err = script("eval/verdict.py", *words)  # left out unasked
    assert status == 0, err
    assert "leak guard      10 of 30 images of the pool are left out, because they show test images" in out
    assert len((tmp_path / "w" / "left_out_pool.csv").read_text().splitlines()) == 11
    told = json.loads((tmp_path / "w" / "leaks.json").read_text())
    assert (told["images"]["pool"], told["affected"], told["findings"]) == (20, [], [])
    assert told["sentences"] == [
        "10 of 30 images of the pool are left out, because they show test images (10 the same bytes)."
    ]


def test_runs_of_other_images_or_none_are_refused(script, tmp_path: Path) -> None:
    save_images(tmp_path / "images", {"a": 20, "b": 20})
    save_images(tmp_path / "others", {"a": 20, "b": 21}, seed=1)
    status, _, err = script("recipes/mae.py", "--data.path", "others", "--fit.epochs", "1", "--run.dir", "run", *TINY)
    assert status == 0, err
    words = ["--data.path", "images", "--run.dir", "v", "--verdict.plan_only", "true", "--verdict.jobs", "0"]
    status, _, err = script("eval/verdict.py", *words, "--verdict.backbones", "run")
    assert status == 1
    assert "run was pre-trained on other images than --data.path images" in err
    status, _, err = script("eval/verdict.py", *words, "--verdict.backbones", "nowhere")
    assert status == 1
    assert "--verdict.backbones nowhere does not exist" in err


def test_a_run_that_is_there_is_judged(script, tmp_path: Path) -> None:
    save_images(tmp_path / "images", {"a": 30, "b": 30})
    status, _, err = script("recipes/mae.py", "--data.path", "images", "--fit.epochs", "1", "--run.dir", "run", *TINY)
    assert status == 0, err
    status, out, err = script(
        "eval/verdict.py", "--data.path", "images", "--run.dir", "v", "--verdict.backbones", "run",
        "--verdict.jobs", "0", "--verdict.plan_only", "true", "--verdict.shares", "[50]",
    )  # fmt: skip
    assert status == 0, err
    assert "MAE, fine-tuned" in out
    assert "pre-training" not in out.replace("FLOPs of pre-training", "")


def test_runs_of_one_method_are_replicates(script, tmp_path: Path) -> None:
    save_images(tmp_path / "images", {"a": 30, "b": 30})
    words = ["recipes/mae.py", "--data.path", "images", "--fit.epochs", "1", *TINY]
    for name, more in {"one": [], "two": ["--seed", "1"], "copy": [], "other": ["--mae.mask_ratio", "0.6"]}.items():
        status, _, err = script(*words, *more, "--run.dir", name)
        assert status == 0, err

    def judged(names: str) -> tuple[int, str, str]:
        plan = ["--verdict.jobs", "0", "--verdict.plan_only", "true", "--verdict.shares", "[50]", "--run.dir", "v"]
        return script("eval/verdict.py", "--data.path", "images", "--verdict.backbones", names, *plan)

    for names, sentence in {
        "one,./one": "names ./one twice",
        "one,copy": "have one seed, 0, so they are one pre-training",
        "one,other": "were pre-trained with different options (mae.mask_ratio 0.5 -> 0.6)",
    }.items():
        status, _, err = judged(names)
        assert status == 1 and sentence in err and err.count("\n") == 1, err
    status, out, err = judged("one,two")
    assert status == 0, err
    assert "MAE, fine-tuned" in out


def test_a_folder_whose_images_have_changed_is_refused(script, tmp_path: Path) -> None:
    save_images(tmp_path / "images", {"a": 20, "b": 20})
    words = ["--data.path", "images", "--run.dir", "v", *PLAN]
    status, _, err = script("eval/verdict.py", *words)
    assert status == 0, err
    save_images(tmp_path / "more", {"a": 1}, seed=1)
    (tmp_path / "more" / "a" / "00.png").rename(tmp_path / "images" / "a" / "new.png")
    status, _, err = script("eval/verdict.py", *words)
    assert status == 1 and err.count("\n") == 1
    assert "--run.dir v holds a run on other images (they have changed); name another folder" in err


def test_a_metric_that_the_test_images_leave_undefined(script, tmp_path: Path) -> None:
    save_images(tmp_path / "images", {"a": 60, "b": 1})
    words = ["--data.path", "images", "--run.dir", "v", *PLAN]
    status, _, err = script("eval/verdict.py", *words, "--eval.metric", "auroc")
    assert status == 1
    assert "--eval.metric auroc is not defined on the 12 test images" in err and "a single class" in err


def test_classes_that_are_smaller_than_was_asked_for(script, tmp_path: Path) -> None:
    save_images(tmp_path / "images", {"a": 60, "b": 20})
    status, out, err = script(
        "eval/verdict.py", "--data.path", "images", "--run.dir", "v", "--verdict.per_class", "[20]", *PLAN
    )
    assert status == 0, err
    assert "20 per class: there are fewer of b, all of which are taken; larger classes give more instead" in out


def test_a_verdict_that_is_not_finished_has_no_report(script, tmp_path: Path) -> None:
    save_images(tmp_path / "images", {"a": 20, "b": 20})
    status, _, err = script("eval/verdict.py", "--data.path", "images", "--run.dir", "v", *PLAN)
    assert status == 0, err
    status, _, err = script("eval/report.py", "v")
    assert status == 1
    assert "v is a verdict that is not finished; repeat its command, which continues" in err


def test_public_weights_from_a_folder_or_left_out(script, launched, monkeypatch, tmp_path: Path) -> None:
    save_images(tmp_path / "images", {"a": 30, "b": 30})
    status, _, err = script("recipes/mae.py", "--data.path", "images", "--fit.epochs", "1", "--run.dir", "run", *TINY)
    assert status == 0, err
    words = ["--data.path", "images", *PLAN, "--verdict.shares", "[50]", "--verdict.methods", "public"]
    status, out, err = script("eval/verdict.py", *words, "--run.dir", "v", "--verdict.public", "run/backbone")
    assert status == 0, err
    assert "public weights, fine-tuned" in out
    assert told(tmp_path / "v" / "runs" / "public" / "backbone" / "config.json")["ssl_vit"]["public"] == "run/backbone"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "empty"))
    done = launched("eval/verdict.py", *words, "--run.dir", "w", cwd=tmp_path, cold=True)
    assert done.returncode == 0, done.stderr
    assert "left out  public weights: vit_small_patch16_224.dino could not be downloaded" in done.stdout
    assert "public weights, fine-tuned" not in done.stdout
    words += ["--run.dir", "x", "--verdict.public", "resnet18.a1_in1k"]
    done = launched("eval/verdict.py", *words, cwd=tmp_path, cold=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: --verdict.public: resnet18.a1_in1k could not be downloaded")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--verdict.budget", "soon"], "--verdict.budget soon is no length of time; write 90s, 10m, 2h or 1.5d"),
        (["--verdict.methods", "mea"], "--verdict.methods mea is none of"),
        (["--verdict.labels", "[5000]"], "5,000 labels are asked for, but there are 1,438 training labels"),
        (["--verdict.methods", "public", "--verdict.public", "vit_smal.dino"], "is neither a folder nor a timm model"),
        (
            ["--verdict.methods", "cnn", "--verdict.cnn", "resnet5"],
            "--verdict.cnn resnet5 is neither a short name nor a timm model",
        ),
        (["--verdict.networks", "vit,resnet5"], "--verdict.networks resnet5 is neither a short name nor a timm model"),
        (["--verdict.networks", "vit,mae"], "--verdict.networks mae is no network; methods and features are"),
        (["--mae.fit.min_steps", "5"], "--mae.fit.min_steps: give the length of pre-training as --mae.fit.epochs"),
        (["--dino.momentum", "1.5"], "--dino.momentum 1.5 must be at least 0 and at most 1"),
        (["--verdict.trials", "0"], "--verdict.trials 0 must be at least 1"),
    ],
)
def test_mistakes_end_in_one_line(script, words: list[str], sentence: str) -> None:
    status, _, err = script("eval/verdict.py", *PLAN, *words)
    assert status == 1
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    assert sentence in err
