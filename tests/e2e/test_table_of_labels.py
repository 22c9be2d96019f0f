"""A folder of images and a table with names and classes of a third of them, as somebody types it the first time."""

from __future__ import annotations

import csv
import json
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from made_scripts import InProcess

SHORT = ["--fit.epochs", "1", "--fit.min_steps", "30"]


def save_cells(root: Path) -> None:
    """60 images, bright or dark; labels.csv beside their folder names 20 of them, all.csv names all of them."""
    rng = np.random.default_rng(0)
    (root / "cells").mkdir()
    rows: list[tuple[str, str]] = []
    for i in range(60):
        bright = i % 2 == 0
        pixels = (40 + 110 * bright + rng.integers(0, 60, (24, 24, 3))).astype(np.uint8)
        Image.fromarray(pixels).save(root / "cells" / f"{i:02}.png")
        rows.append((f"{i:02}.png", ("dark", "bright")[bright]))
    labelled = rows[:10] + rows[50:]
    for name, content in {
        "labels.csv": labelled,
        "all.csv": [(f"cells/{name}", label if (name, label) in labelled else "") for name, label in rows],
        "several.csv": [(*row, f"p{i // 5}") for i, row in enumerate(labelled)],
        "wrong.csv": [("a.png", "dark"), ("b.png", "bright")],
    }.items():
        columns = ("name", "kind", "plate") if name == "several.csv" else ("name", "class")
        with (root / name).open("w", newline="") as file:
            csv.writer(file).writerows([columns, *content])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, small: list[str]) -> Path:
    """Pre-trained on the folder and fine-tuned on the table."""
    folder = tmp_path_factory.mktemp("table")
    save_cells(folder)
    with pytest.MonkeyPatch.context() as patch:
        script = InProcess(patch, folder)
        status, out, err = script(
            "recipes/mae.py", "cells", "--data.labels", "labels.csv", *small, *SHORT, "--run.dir", "run"
        )
        assert status == 0, err
        for line in (
            "labels          column class of labels.csv: 20 of 60 images have a label (training reads none)",
            "classes         2: bright 10, dark 10",
            "test split      4 images, 20% of every class, chosen by a fixed hash; 16 to learn from",
            "images          56 from cells",
        ):
            assert line in out
        assert "network         ViT of 2 blocks of width 16" in out
        assert "input           " in out
        assert "column name of labels.csv names 20 images: 20 found in cells" in err
        assert sum(line.startswith(("note", "warning")) for line in err.splitlines()) == 1, err
        status, out, err = script("eval/finetune.py", "run", *SHORT)
        assert status == 0, err
        for word in ("labels  ", "classes  ", "test split  ", "metric  ", "network  ", "input  "):
            assert f"\n{word}" in f"\n{out}"
        assert "20 of 60 images have a label" in out
        assert "eval/predict.py --classifier run/finetune/" in out
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return tmp_path


def predictions() -> list[dict[str, str]]:
    with Path("predictions.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_what_has_no_label_is_predicted_least_certain_first_with_a_page(here: Path, trained: Path, script) -> None:
    names = ["run", str(next(Path("run/finetune").iterdir())), str(next(Path("run/finetune").iterdir()) / "classifier")]
    for given in (*names, "run/backbone"):
        status, out, err = script("eval/predict.py", "--classifier", given)
        assert status == 0, err
        assert "40 of 60 images from" in out
        assert "predictions.html: what to label next, the 40 images" in out
    rows = predictions()
    assert sorted(Path(row["file"]).name for row in rows) == [f"{i:02}.png" for i in range(10, 50)]
    assert list(rows[0]) == ["file", "prediction", "certainty", "bright", "dark", "unreadable"]
    certainty = [float(row["certainty"]) for row in rows]
    assert all(b > a - 1e-6 for a, b in pairwise(certainty))
    right = [(row["prediction"] == "bright") == (int(Path(row["file"]).stem) % 2 == 0) for row in rows]
    assert np.mean(right) > 0.9
    page = Path("predictions.html").read_text()
    assert page.count("data:image/png;base64,") == 40
    assert not any(word in page for word in ("http://", "https://", "<script", 'src="/'))
    assert page.index(Path(rows[0]["file"]).name) < page.index(Path(rows[1]["file"]).name)


def test_which_images_and_in_which_order(here: Path, script) -> None:
    words = ["run", "--predict.which", "all", "--predict.order", "source", "--predict.pictures", "0"]
    Path("predictions.html").unlink(missing_ok=True)
    status, out, err = script("eval/predict.py", *words)
    assert status == 0, err
    assert [Path(row["file"]).name for row in predictions()] == [f"{i:02}.png" for i in range(60)]
    assert not Path("predictions.html").exists()
    status, out, err = script(
        "eval/predict.py", "run", "cells", "--data.labels", "labels.csv", "--predict.which", "unlabelled"
    )
    assert status == 0, err
    assert len(predictions()) == 40
    shutil.copytree("cells", "new")
    status, out, err = script("eval/predict.py", "run", "new")
    assert status == 0, err
    assert "60 images from new" in out


def test_other_labels_have_a_result_of_their_own(here: Path, script) -> None:
    for column in (None, "kind", "plate", "plate"):
        other = ["--eval.data.labels", "several.csv", "--eval.data.label_column", column] if column else []
        status, _, err = script("eval/knn.py", "run", *other)
        assert status == 0, err
    found = {path.name: json.loads(path.read_text()) for path in Path("run/results").glob("knn*.json")}
    others = found.keys() - {"knn.json"}
    assert len(others) == 2 and all(name.startswith("knn-on-") for name in others)
    assert len({found[name]["protocol"]["test"]["fingerprint"] for name in others}) == 2


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["all.csv"], "20 of 60 images have a label"),
        (["cells", "--eval.data.labels", "labels.csv"], "20 of 60 images have a label"),
        (["cells", "--eval.data.path", "labels.csv"], "all 20 images have a label"),
    ],
)
def test_other_ways_of_naming_the_same(words: list[str], count: str, small: list[str], tmp_path: Path, script) -> None:
    save_cells(tmp_path)
    leak = ["--data.on_leak", "warn"] if "--eval.data.path" in words else []
    status, out, err = script("recipes/mae.py", *words, *leak, *small, *SHORT, "--run.dir", "run")
    assert status == 0, err
    assert count in out
    for command in (["eval/knn.py", "run"], ["eval/linear_probe.py", "run"], ["eval/finetune.py", "run", *SHORT]):
        status, out, err = script(*command)
        assert status == 0, err
        assert count in out
    result = json.loads(Path("run/results/knn.json").read_text())
    assert (result["labels_used"], result["protocol"]["test"]["images"]) == (16, 4)
    status, out, err = script("eval/predict.py", "run")
    assert status == 0, err
    assert sorted(Path(row["file"]).name for row in predictions()) == [f"{i:02}.png" for i in range(10, 50)]


def test_the_labelled_baseline_and_its_classifier(small: list[str], tmp_path: Path, script) -> None:
    save_cells(tmp_path)
    words = ["cells", "--data.labels", "several.csv", "--data.label_column", "kind", "--data.group", "plate"]
    status, out, err = script("recipes/supervised.py", *words, *small, *SHORT, "--run.dir", "scratch")
    assert status == 0, err
    assert "column kind of several.csv: 20 of 60 images have a label" in out
    assert "1 of 4 groups (plate)" in out
    status, out, err = script("eval/predict.py", "scratch")
    assert status == 0, err
    assert "40 of 60 images" in out


@pytest.mark.parametrize(
    ("command", "words", "expected"),
    [
        ("recipes/mae.py", ["cell"], "there is no file or folder cell; did you mean cells?"),
        ("recipes/mae.py", ["cells", "--data.labels", "label.csv"], "did you mean labels.csv"),
        ("recipes/mae.py", ["cells", "--data.labels", "wrong.csv"], "wrong.csv names no image of cells"),
        ("recipes/mae.py", ["cells", "--data.labels", "several.csv"], "Name one: --data.label_column kind"),
        (
            "recipes/mae.py",
            ["cells", "--data.labels", "labels.csv", "--data.label_column", "klass"],
            "did you mean class",
        ),
        ("recipes/supervised.py", ["cells"], "name a table of labels with --eval.data.labels"),
        ("eval/finetune.py", ["nowhere"], "--backbone nowhere does not exist"),
        ("eval/finetune.py", ["run", "--eval.data.label_column", "klass"], "did you mean class"),
        ("eval/predict.py", [], "--classifier is missing"),
        ("eval/predict.py", ["cells"], "--classifier cells holds no classifier"),
        ("eval/predict.py", ["run", "--out", "no/where.csv"], "name a file in a folder that exists"),
        ("eval/predict.py", ["run", "labels.csv", "--predict.which", "unlabelled"], "every image of"),
    ],
)
def test_wrong_words_have_one_line(command: str, words: list[str], expected: str, here: Path, small, script) -> None:
    status, _, err = script(command, *words, *(small if command.startswith("recipes") else []))
    assert status == 1
    assert expected in err
    assert err.rstrip().splitlines()[-1].startswith("error: ")
    assert sum(line.startswith("error: ") for line in err.splitlines()) == 1
