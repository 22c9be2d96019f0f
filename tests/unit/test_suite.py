"""Transfer suites: what they name, and their table."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from ssl_vit.configs import KNNRecipe, LinearRecipe, RunConfig, TransferConfig, TransferRecipe
from ssl_vit.configs.evaluation import SoupConfig
from ssl_vit.configs.protocols import PROTOCOLS, SOUP
from ssl_vit.configs.suites import GROUPS, SETS, SUITES
from ssl_vit.core.errors import UserError
from ssl_vit.evaluation.transfer.running import _is_there
from ssl_vit.evaluation.transfer.suite import Entry, Suite, read_suite
from ssl_vit.evaluation.transfer.table import Row, means, row_of, transfer_table
from ssl_vit.methods.supervised import SoupRecipe
from ssl_vit.runs.identity import digest
from ssl_vit.runs.results import Result


def suite(given: str | Path, **transfer: Any) -> Suite:
    return read_suite(TransferRecipe("RUN", str(given), transfer=TransferConfig(**transfer)))


def by_name(found: Suite) -> dict[str, Entry]:
    return {entry.name: entry for entry in found.entries}


def picture(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 4)).save(place)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three sets of different kinds, and a folder of images without labels."""
    for path in ("birds/a/1.png", "birds/b/1.png", "cells/train/x/1.png", "cells/test/x/1.png", "flat/1.png"):
        picture(tmp_path / "sets" / path)
    (tmp_path / "sets" / "stones.parquet").touch()
    (tmp_path / "sets" / ".hidden").mkdir()
    return tmp_path / "sets"


def test_a_folder_of_sets(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = suite(folder, labels=50)
    assert found.name == "sets"
    assert [(e.name, e.path, e.group, e.protocol.name, e.most) for e in found.entries] == [
        (name, str(folder / file), "", "cached", 50)
        for name, file in (("birds", "birds"), ("cells", "cells"), ("stones", "stones.parquet"))
    ]
    assert all(isinstance(e.config, LinearRecipe) and not e.config.eval.baselines for e in found.entries)
    assert capsys.readouterr().err == f"note: no set, because nothing in it could be labels: flat in {folder}\n"


def test_a_folder_without_sets_says_what_is_expected(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as one:
        suite(folder / "birds")
    assert "holds no labelled set; in it a, b hold images without folders of classes; expected FOLDER/SET/CLASS" in str(
        one.value
    )
    assert "one set alone" in str(one.value) and "--eval.data.path" in str(one.value)
    with pytest.raises(UserError, match=r"is one set with its splits \(test, train\); name a folder of such folders"):
        suite(folder / "cells")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no labelled set; expected FOLDER/SET/CLASS/"):
        suite(tmp_path / "empty")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("cifar11", "--suite cifar11: there is no such set, suite, folder or file; did you mean cifar10, cifar100?"),
        ("vtap", "did you mean vtab?"),
        ("nothing/like/it", "there is no such set, suite, folder or file (sets are cifar10, cifar100, pets"),
        ("", "--suite is missing; give a folder of labelled sets, a YAML file that tells of sets, or names"),
        ("mine.yaml", "--suite: there is no file or folder mine.yaml"),
    ],
)
def test_what_is_no_suite(given: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as error:
        suite(given)
    assert told in str(error.value)
    if given not in ("mine.yaml",):
        assert all(name in str(error.value) for name in (*SETS, *SUITES))


def test_the_tables_of_sets_and_suites() -> None:
    assert all(name in SETS for known in SUITES.values() for name in known.sets)
    assert {known.group for known in SETS.values()} == set(GROUPS)
    vtab = suite("vtab")
    assert (len(vtab.entries), vtab.name) == (19, "vtab")
    assert [sum(e.group == group for e in vtab.entries) for group in GROUPS] == [7, 4, 8]
    assert {e.most for e in vtab.entries} == {1000}
    assert {e.most for e in suite("vtab", labels=20).entries} == {20}
    found = by_name(suite("pets, cifar100,owner/name:config,digits"))
    assert [e.path for e in found.values()] == [
        "timm/oxford-iiit-pet",
        "uoft-cs/cifar100",
        "owner/name:config",
        "digits",
    ]
    assert found["cifar100"].config.eval.data.label_column == "fine_label" and found["cifar100"].most is None
    assert list(found) == ["pets", "cifar100", "name:config", "digits"]
    assert found["name:config"].slug == "name_config"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"backbone": "other"}, "backbone is decided by the suite; the network is named behind the command"),
        (
            {"eval": {"data": {"path": "digits"}}},
            "eval.data.path is decided by the suite; a suite file says it by path:",
        ),
        (
            {"linear.protocol": "logistic"},
            "linear.protocol is decided by the suite; .* the command by --transfer.protocol",
        ),
        ({"run.dir": "a"}, "run.dir is decided by the suite; the command has it for all sets"),
        ({"run": "a"}, "run is decided by the suite"),
        ({"dry_run": True}, "dry_run is decided by the suite"),
        ({"fit.epochs": 3}, "no protocol of this suite has fit.epochs; it is for aug-mae"),
    ],
)
def test_what_the_suite_decides_is_no_option(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=f"--transfer.options: {told}"):
        suite("pets", options=options)


def test_a_soup_needs_a_rate() -> None:
    def asked(protocol: str, *rates: float) -> Suite:
        given = TransferConfig(protocol=protocol)
        return read_suite(TransferRecipe("RUN", "digits", transfer=given, soup=SoupConfig(rates=rates)))

    with pytest.raises(UserError, match=r"--soup\.rates: at least one"):
        asked("soup")
    with pytest.raises(UserError, match=r"--soup: no protocol of this suite has soup\.rates; it is for soup"):
        asked("knn", 1.0)


def test_options_for_all_reach_those_that_have_them(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("sets: {digits: {path: digits, protocol: knn}, pets: }")
    found = by_name(suite(tmp_path / "mine.yaml", options={"knn.k": 3, "linear": {"folds": 4}, "eval.draw": 2}))
    one, other = found["digits"].config, found["pets"].config
    assert isinstance(one, KNNRecipe) and isinstance(other, LinearRecipe)
    assert (one.knn.k, one.eval.draw, other.linear.folds, other.eval.draw) == (3, 2, 4, 2)
    with pytest.raises(UserError, match=r"no protocol of this suite has knn\.kk; did you mean knn\.k"):
        suite(tmp_path / "mine.yaml", options={"knn.kk": 3})


def test_one_protocol_for_all() -> None:
    for name, protocol in {**PROTOCOLS, "soup": SOUP}.items():
        if protocol.run:
            assert suite("digits", protocol=name).entries[0].protocol is protocol
    with pytest.raises(UserError, match=r"--transfer.protocol soop is none of knn, .*, soup; did you mean soup"):
        suite("digits", protocol="soop")
    mixed = read_suite(TransferRecipe("RUN", "digits", seed=3, transfer=TransferConfig(protocol="soup"))).entries[0]
    assert isinstance(mixed.config, SoupRecipe)
    assert (mixed.config.soup.kind, mixed.config.soup.rates, mixed.config.seed) == ("greedy", (0.5, 1.0, 2.0), 3)


def test_other_questions_have_other_tables(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one name: protocol, labels, options, seed, place and content of a suite; the same has the same file."""
    plain = suite("pets,digits")
    assert plain.file == plain.name == "pets-digits"
    (tmp_path / "other" / "sets" / "birds" / "a").mkdir(parents=True)
    (tmp_path / "sets.yaml").write_text("sets: [pets]")
    found = [
        suite(folder), suite(folder, protocol="knn"), suite(folder, labels=20), suite(folder, options={"eval.draw": 1}),
        read_suite(TransferRecipe("RUN", str(folder), seed=1)), suite(tmp_path / "other" / "sets"),
        suite(tmp_path / "sets.yaml"),
        *(read_suite(TransferRecipe(one, str(folder), run=RunConfig(dir="out"))) for one in ("RUN", "OTHER")),
    ]  # fmt: skip
    (tmp_path / "sets.yaml").write_text("sets: {pets: {metric: balanced}}")
    found.append(suite(tmp_path / "sets.yaml"))
    assert {one.name for one in found} == {"sets"}
    assert len({one.file for one in found}) == len(found)
    monkeypatch.chdir(tmp_path)
    assert suite("sets").file == suite(folder).file
    asked = json.loads(json.dumps(found[-1].asked))
    assert (asked["suite"], asked["protocol"], asked["labels"]) == (str(tmp_path / "sets.yaml"), "cached", None)
    (one,) = asked["sets"]
    assert (one["name"], one["options"]["eval.metric"]) == ("pets", "balanced")


def test_real_labels_are_for_imagenet(tmp_path: Path) -> None:
    file = tmp_path / "real.json"
    file.write_text("[]")
    assert [e.real for e in suite("imagenet,pets", real=str(file)).entries] == [file, None]
    with pytest.raises(UserError, match="is about the set imagenet, which is not in this suite"):
        suite("pets", real=str(file))
    with pytest.raises(UserError, match="real of imagenet: there is no file"):
        suite("imagenet", real=str(tmp_path / "rael.json"))
    with pytest.raises(
        UserError, match=r"real of imagenet: .* eval\.held_out judges on a fifth of the training labels"
    ):
        suite("imagenet", real=str(file), options={"eval.held_out": True})
    file.write_text('{"1.png": [true]}')  # its form is looked at before anything is judged
    with pytest.raises(UserError, match=r"real\.json: a class is a name or a number, and True is neither"):
        suite("imagenet", real=str(file))


def row(name: str, value: float | None, group: str = "", **told: Any) -> Row:
    given = {"heading": "top-1 %", "shown": f"{value}", "labels": 10, "images": 1000} | told
    return Row(name, group, "knn", value=value, **given)


def judged(*rows: dict[str, Any], method: str = "knn", split: str = "test split") -> Result:
    about = {"metric": "top1", "test": {"split": split}}
    return Result(Path("knn.json"), method, list(rows), about, "", 10, None, 0, {})


def test_a_row_is_about_the_headline() -> None:
    """Neighbours stand in the order of k, and the table is about k = 20 wherever it stands."""
    ks = [{"method": "mae", "k": k, "top1": float(k), "headline": k == 20, "images": 9} for k in (10, 20, 100)]
    found = row_of("a", "", judged(*ks))
    assert (found.value, found.shown, found.images, found.note) == (20.0, "20.0", 9, "")
    assert row_of("a", "", judged({"method": "mae", "top1": 5.0}, method="logistic")).value == 5.0


def test_unreadable_test_images_are_noted() -> None:
    rows = [{"top1": 5.0, "unreadable_test_images": ["x"] * lost} for lost in (1, 2)]
    one, two = (row_of("a", "", judged(row)) for row in rows)
    assert one.note == "1 test image could not be read and is left out"
    assert two.note == "2 test images could not be read and are left out"
    assert f"- a: {two.note}" in transfer_table("", [two]).markdown()


def test_what_was_judged_on_held_out_labels_says_so() -> None:
    found = row_of("a", "", judged({"top1": 5.0}, split="a fifth of the 40 given labels"))
    assert found.note == "judged on held-out labels, not on test images"


def test_means_over_named_groups() -> None:
    rows = [
        row("a", 10.0, "mine"), row("b", 30.0, "structured"), row("c", 70.0, "natural"), row("d", 50.0, "natural"),
        row("e", None, "structured", failed="gone"), row("f", 0.3, "natural", percent=False, heading="R2"),
        row("g", 20.0), row("h", None, "lost", failed="gone"),
    ]  # fmt: skip
    found = [(mean.group, mean.value, mean.sets, mean.of) for mean in means(rows)]
    assert found == [
        ("natural", 60.0, 2, 3), ("structured", 30.0, 1, 2), ("mine", 10.0, 1, 1), ("lost", None, 0, 1),
        ("", 36.0, 5, 8),
    ]  # fmt: skip


def test_the_table_says_what_its_numbers_are() -> None:
    rows = [
        row("a|b", 91.25, "natural", shown="91.2"), row("c", 0.5, percent=False, heading="R2", shown="0.500"),
        replace(row("d", 50.0, heading="balanced %", shown="50.0", note="of two"), evaluation="finetune"),
        row("e", None, failed="it is not here"),
    ]  # fmt: skip
    table = transfer_table("run on sets", rows)
    text = table.markdown()
    assert "| set | group | evaluation | labels | test images | metric | value |" in text
    assert "| a\\|b | natural | knn | 10 | 1,000 | top-1 % | 91.2 |" in text
    assert "| e | - | knn | - | - | top-1 % | failed |" in text
    assert "| mean of natural |  |  |  |  |  | 91.2 |" in text
    assert "| mean of all sets (2 of 4) |  |  |  |  |  | 70.6 |" in text
    for note in (
        "d: of two",
        "e failed: it is not here",
        "means are over values of several metrics: top-1 %, balanced %",
        "in no mean, because it is not in percent: c (R2)",
        "values of different evaluations cannot be compared: knn, finetune",
        "one number per set, no interval: a mean over these sets says nothing of others",
    ):
        assert f"- {note}\n" in text
    assert json.loads(json.dumps(table.data()))["means"][-1] == {"group": "", "value": 70.625, "sets": 2, "of": 4}


def test_reading_a_suite_needs_no_torch() -> None:
    import subprocess

    code = "import sys; import ssl_vit.evaluation.transfer.suite; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(("kind", "answers", "kept"), [
    ("class", ("positions", "predicted"), True), ("class", ("positions",), False),
    ("regression", ("positions",), True), ("multilabel", ("positions", "units"), True),
    ("regression", ("units",), False),
])  # fmt: skip
def test_results_of_every_kind_of_labels_are_kept(
    kind: str, answers: tuple[str, ...], kept: bool, tmp_path: Path
) -> None:
    protocol = {"kind": kind, "metric": "top1", "test": "x"}
    told = {"method": "knn", "rows": [{"method": "x"}], "protocol": protocol, "protocol_hash": digest(protocol),
            "labels_used": 10, "draw": None, "seed": 0, "data": {}}  # fmt: skip
    (tmp_path / "r.json").write_text(json.dumps(told))
    assert not _is_there(tmp_path / "r.json")
    np.savez(tmp_path / "r.npz", **{name: np.zeros(3) for name in answers})
    assert _is_there(tmp_path / "r.json") == kept
