"""ssl-vit transfer, whole: local sets, made-up caches of the hub, failing sets, kept results, soups."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub.constants
import numpy as np
import pytest
from PIL import Image
from ssl_vit.evaluation.transfer.soup import average
from ssl_vit.exports.classifier import load_classifier
from ssl_vit.runs.listing import Run, find
from ssl_vit.runs.results import read_results

SCRIPT = "eval/transfer.py"
LEVELS = {"bright": 190, "dark": 20, "grey": 110}


def draw(folder: Path, count: int = 10, seed: int = 0) -> Path:
    """Three classes of small grey images."""
    rng = np.random.default_rng(seed)
    for name, level in LEVELS.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = (level + rng.integers(0, 60, (8, 8))).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i:02d}.png")
    return folder


def table_of(folder: Path) -> dict[str, list[Any]]:
    files = sorted(folder.rglob("*.png"))
    names = sorted(LEVELS)
    return {
        "image": [{"bytes": file.read_bytes(), "path": f"{file.parent.name}-{file.name}"} for file in files],
        "label": [names.index(file.parent.name) for file in files],
    }


def table_in(run: Path, name: str) -> dict[str, Any]:
    """The one table of a suite."""
    (file,) = run.glob(f"results/transfer/{name}-*.json")
    return json.loads(file.read_text())


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the hub's data sets, empty, and no network."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def cached(cache: Path, name: str, splits: dict[str, Path]) -> None:
    """What ``load_dataset`` leaves of a set on the hub, made by hand: arrow files, and what is in them."""
    owner, _, last = name.partition("/")
    place = cache / f"{owner}___{last}" / "default" / "0.0.0" / ("0" * 40)
    place.mkdir(parents=True)
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=sorted(LEVELS)))
    told: dict[str, Any] = {}
    for split, folder in splits.items():
        found = datasets.Dataset.from_dict(table_of(folder), features=features)
        file = place / f"{last}-{split}.arrow"
        with datasets.arrow_writer.ArrowWriter(path=str(file), features=features) as writer:
            writer.write_table(found.data.table)
            writer.finalize()
        told[split] = {"name": split, "num_examples": len(found), "dataset_name": last}
    about = {
        "features": features.to_dict(), "builder_name": "parquet", "dataset_name": last, "config_name": "default",
        "version": {"version_str": "0.0.0", "major": 0, "minor": 0, "patch": 0}, "splits": told,
    }  # fmt: skip
    (place / "dataset_info.json").write_text(json.dumps(about))


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    """A folder of classes, a table, and a folder whose images cannot be read."""
    place = tmp_path / "sets"
    draw(place / "birds")
    datasets.Dataset.from_dict(table_of(draw(tmp_path / "stones", seed=1))).to_parquet(place / "stones.parquet")
    for file in draw(place / "wrecks").rglob("*.png"):
        file.write_bytes(b"\x89PNG nothing")
    return place


def test_a_folder_of_sets_of_which_one_fails(backbone: str, sets: Path, script, tmp_path: Path) -> None:
    words = [SCRIPT, backbone, str(sets), "--transfer.protocol", "knn"]
    status, out, err = script(*words)
    assert status == 1
    assert [line.split(":")[0] for line in err.splitlines() if not line.startswith("note")] == ["failed", "error"]
    assert "failed: wrecks: no image in " in err
    assert "error: 1 of 3 sets failed (wrecks); the same command judges these alone, and keeps the others" in err
    results = Path("run/results/transfer")
    table = table_in(Path("run"), "sets")
    assert table["asked"]["protocol"] == "knn" and table["asked"]["suite"] == str(sets)
    rows = {row["name"]: row for row in table["sets"]}
    assert list(rows) == ["birds", "stones", "wrecks"]
    assert rows["wrecks"]["value"] is None and "no image in " in rows["wrecks"]["failed"]
    assert table["means"] == [{"group": "", "value": (rows["birds"]["value"] + rows["stones"]["value"]) / 2, "sets": 2,
                               "of": 3}]  # fmt: skip
    assert rows["birds"]["value"] > 60
    (page,) = results.glob("sets-*.md")
    text = page.read_text()
    assert "| mean of all sets (2 of 3) |" in text and "- wrecks failed: " in text
    assert "mean of all sets (2 of 3)" in out and "run on sets" in out
    result = read_results([Path("run", rows["birds"]["result"])])[0]
    (headline,) = [row for row in result.rows if row["headline"] and row["method"] == result.rows[0]["method"]]
    assert headline["k"] == 20 and headline[result.protocol["metric"]] == rows["birds"]["value"]
    assert not [file for file in Path("run/results").iterdir() if file.suffix == ".json"]  # compare RUN stays possible

    made = {file: file.read_bytes() for file in (results / "sets").iterdir() if file.name != "SHA256SUMS"}
    shutil.rmtree(sets / "wrecks")
    draw(sets / "wrecks", seed=2)
    status, out, err = script(*words)
    assert status == 0, err
    assert out.count("kept from before: ") == 2
    assert {file: file.read_bytes() for file in made} == made
    again = table_in(Path("run"), "sets")
    assert [(row["name"], row["kept"]) for row in again["sets"]] == [
        ("birds", True),
        ("stones", True),
        ("wrecks", False),
    ]
    assert again["sets"][0]["value"] == rows["birds"]["value"]
    # Other options and other images are judged anew; a damaged result, too.
    assert "kept from before" not in script(*words, "--transfer.options", '{"knn.k": 5}')[1]
    (sets / "birds" / "bright" / "00.png").unlink()
    Path("run", rows["stones"]["result"]).write_text("{")
    status, out, err = script(*words)
    assert status == 0, err
    assert out.count("kept from before: ") == 1 and "sets/wrecks-" in out.partition("kept from before: ")[2]


def test_names_of_the_hub_from_the_cache(backbone: str, offline: Path, script, tmp_path: Path) -> None:
    """Sets by name where they are cached; what is not is told in one line, and the others go on."""
    train, test = draw(tmp_path / "train"), draw(tmp_path / "test", 4, seed=1)
    cached(offline, "timm/oxford-iiit-pet", {"train": train, "test": test})
    cached(offline, "dpdl-benchmark/oxford_flowers102", {"train": train, "validation": test, "test": test})
    words = ["--transfer.options", '{"linear.rates": [1], "linear.decays": [0.0001]}', "--transfer.labels", "24"]
    status, out, err = script(SCRIPT, backbone, "pets,flowers102,cifar10", *words)
    assert status == 1
    failed = [line for line in err.splitlines() if line.startswith("failed: ")]
    assert len(failed) == 1 and failed[0].startswith("failed: cifar10: there is no file or folder uoft-cs/cifar10")
    assert "not in the cache" in failed[0]
    table = table_in(Path("run"), "pets-flowers102-cifar10")
    pets, flowers, cifar = table["sets"]
    assert (pets["labels"], pets["images"], pets["evaluation"]) == (24, 12, "linear-cached")
    assert (flowers["images"], cifar["value"]) == (12, None)
    assert [(mean["group"], mean["sets"], mean["of"]) for mean in table["means"]] == [("natural", 2, 3), ("", 2, 3)]
    assert "mean of natural (2 of 3)" in out


def test_a_suite_file_with_several_right_answers(backbone: str, script, tmp_path: Path) -> None:
    draw(tmp_path / "sets" / "birds" / "train")
    draw(tmp_path / "sets" / "birds" / "test", 4, seed=1)
    names = [f"{level}/{i:02d}.png" for level in LEVELS for i in range(3)] + ["bright/99.png"]
    (tmp_path / "real.json").write_text(json.dumps({name: sorted(LEVELS) for name in names}))  # all are right
    (tmp_path / "mine.yaml").write_text(
        "protocol: knn\nsets:\n  birds: {path: sets/birds, group: mine, real: real.json, metric: balanced}\n"
        "  digits: {path: digits, group: other, protocol: logistic, linear: {grid: [0.1]}, labels: 30}\n"
    )
    status, out, err = script(SCRIPT, backbone, "mine.yaml")
    assert status == 0, err
    table = table_in(Path("run"), "mine")
    birds, digits = table["sets"]
    assert (birds["heading"], birds["value"], birds["images"]) == ("ReaL %", 100.0, 9)
    assert birds["note"].startswith("3 of 12 test images have no label in real.json and are left out; balanced by one")
    assert birds["note"].endswith("; 1 of the 10 names in real.json are no test image's")
    assert (digits["evaluation"], digits["labels"], digits["images"]) == ("logistic", 30, 359)
    assert [mean["group"] for mean in table["means"]] == ["mine", "other", ""]
    assert "birds: ReaL accuracy 100.0 % on 9 images; 3 have no label there" in out
    assert "values of different evaluations cannot be compared: knn, logistic" in out
    answers = Path("run") / birds["result"]
    answers = answers.with_suffix(".npz")
    content = answers.read_bytes()
    answers.write_bytes(content[:100] + bytes(20) + content[120:])
    status, out, err = script(SCRIPT, backbone, "mine.yaml")
    assert status == 0, err
    assert out.count("kept from before") == 1  # the other one; this is judged again
    assert answers.read_bytes() == content
    assert [row["value"] for row in table_in(Path("run"), "mine")["sets"]] == [birds["value"], digits["value"]]


def test_a_fine_tuning_that_diverges_is_left_out_of_a_soup(backbone: str, script) -> None:
    words = ["--transfer.protocol", "soup", "--transfer.labels", "100", "--soup.rates", "1,1e30"]
    short = {"fit.epochs": 1, "fit.min_steps": 20, "fit.batch_size": 16, "optim.lr": 2e-3, "supervised.ema_decay": 0}
    status, out, err = script(SCRIPT, backbone, "digits", *words, "--transfer.options", json.dumps(short))
    assert status == 0, err
    assert "left out: fine-tuning 2 of 2: seed 1, " in err
    assert "best of 1 fine-tunings, no soup" in out and "; 1 more diverged" in out


def test_labels_of_a_set_are_at_most_those_that_are_left(backbone: str, script, tmp_path: Path) -> None:
    for name in ("birds", "stones"):
        test, train = draw(tmp_path / name / "test", 4), draw(tmp_path / name / "train", 10, seed=1)
        for file in test.rglob("*.png"):  # twelve of thirty training images show a test image
            shutil.copy(file, train / file.parent.name / file.name)
    sets = tmp_path / "sets"
    sets.mkdir()
    for name in ("birds", "stones"):
        (tmp_path / name).rename(sets / name)
    for most, used in ((20, 18), (10, 10)):
        words = ["--transfer.protocol", "knn", "--transfer.labels", str(most)]
        status, out, err = script(SCRIPT, backbone, str(sets), *words)
        assert status == 0, err
        lists = [line.split()[-1] for line in out.splitlines() if line.startswith("left out  ")]
        assert len(lists) == len(set(lists)) == 2
        for name, listed in zip(("birds", "stones"), lists, strict=True):
            with Path(listed).open(newline="") as file:
                rows = list(csv.DictReader(file))
            assert len(rows) == 12 and all(f"/{name}/" in row["image"] for row in rows)
            result = read_results([Path(listed.removesuffix("-left_out_train.csv") + ".json")])[0]
            assert result.labels_used == used
    assert not Path("run/left_out_train.csv").exists()


@pytest.mark.parametrize("kind", ["greedy", "uniform"])
def test_a_soup_is_not_worse_on_held_out_labels(kind: str, backbone: str, script) -> None:
    words = ["--transfer.protocol", "soup", "--transfer.labels", "100", "--soup.kind", kind, "--soup.rates", "1,1.5"]
    short = {"fit.epochs": 1, "fit.min_steps": 20, "fit.batch_size": 16, "optim.lr": 2e-3, "supervised.ema_decay": 0}
    status, out, err = script(SCRIPT, backbone, "digits", *words, "--transfer.options", json.dumps(short))
    assert status == 0, err
    (row,) = table_in(Path("run"), "digits")["sets"]
    result = read_results([Path("run", row["result"])])[0]
    chosen, *single = result.rows
    assert (result.method, result.labels_used, chosen["images"]) == ("soup", 100, 359)
    assert len(chosen["alone"]) == 2 and chosen["validated"] >= max(chosen["alone"])
    assert bool(single) == (len(chosen["members"]) > 1)
    content = json.loads(result.path.read_text())
    assert "a fifth of the labels, which no network was trained on" in content["selection"]
    (place,) = Path("run/transfer").iterdir()
    members = [load_classifier(str(place / f"member-{i}")).net.state_dict() for i in range(2)]
    assert any(not one.equal(other) for one, other in zip(*(m.values() for m in members), strict=True))
    mixed = average([members[i] for i in chosen["members"]])
    left = load_classifier(str(place)).net.state_dict()
    assert all(left[name].allclose(value, atol=1e-6) for name, value in mixed.items())
    rates = [json.loads((place / f"member-{i}" / "results" / "finetune.json").read_text()) for i in range(2)]
    assert [one["seed"] for one in rates] == [0, 1]
    assert [one["rows"][0]["trained_with"]["optim"]["lr"] for one in rates] == pytest.approx([2e-3, 3e-3])
    assert all(one["protocol"]["test"]["split"] == "a fifth of the 100 given labels" for one in rates)
    assert [one["rows"][0]["top1"] for one in rates] == pytest.approx(chosen["alone"], abs=1e-4)
    assert ("soup of 2 of 2" in out) == (len(chosen["members"]) == 2)
    assert ("best of 2 fine-tunings, no soup" in out) == (len(chosen["members"]) == 1)
    card = (place / "classifier" / "README.md").read_text()
    assert "| made of | " in card and " of 2 fine-tunings" in card and "| seed |" not in card


def test_fine_tunings_of_a_suite_are_runs(backbone: str, script) -> None:
    short = {"fit.epochs": 1, "fit.min_steps": 5, "fit.batch_size": 16}
    words = ["--transfer.protocol", "finetune", "--transfer.labels", "50", "--transfer.options", json.dumps(short)]
    status, _, err = script(SCRIPT, backbone, "digits", *words)
    assert status == 0, err
    found = [one for one in find(Path("run")) if isinstance(one, Run)]
    assert [one.method for one in found] == ["mae", "finetune"]
    assert (found[1].state, found[1].path.parent) == ("done", Path("run/transfer"))
    assert "kept from before" in script(SCRIPT, backbone, "digits", *words)[1]


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["run", "cifar11"], 1, "--suite cifar11: there is no such set, suite, folder or file; did you mean cifar10"),
        (["run"], 1, "--suite is missing; give a folder of labelled sets"),
        (["ran", "digits"], 1, "--backbone ran does not exist"),
        (["run", "digits", "--transfer.protocol", "cashed"], 2, "--transfer.protocol cashed is none of knn, cached"),
        (["run", "digits", "--transfer.labels", "0"], 1, "--transfer.labels 0 must be at least 1"),
    ],
)
def test_mistakes_are_one_line(words: list[str], status: int, told: str, backbone: str, script) -> None:
    found, _, err = script(SCRIPT, *words)
    assert (found, err.count("\n")) == (status, 1), err
    assert err.startswith(f"error: {told}")
    assert not Path("run/results").exists()
