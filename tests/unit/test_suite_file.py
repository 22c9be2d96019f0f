"""Suites as YAML files: what they say of each set, what is wrong in them, and what is typed beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image
from ssl_vit.configs import KNNRecipe, LinearRecipe, TransferConfig, TransferRecipe
from ssl_vit.configs.suites import SUITES
from ssl_vit.core.errors import UserError
from ssl_vit.evaluation.transfer.suite import Entry, Suite, read_suite
from ssl_vit.methods.supervised import FinetuneRecipe


def suite(given: str | Path, **transfer: Any) -> Suite:
    return read_suite(TransferRecipe("RUN", str(given), transfer=TransferConfig(**transfer)))


def by_name(found: Suite) -> dict[str, Entry]:
    return {entry.name: entry for entry in found.entries}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two folders of images and an empty table."""
    for place in ("birds/a", "birds/b", "cells/train/x", "cells/test/x"):
        (tmp_path / "sets" / place).mkdir(parents=True)
        Image.new("L", (4, 4)).save(tmp_path / "sets" / place / "1.png")
    (tmp_path / "sets" / "stones.parquet").touch()
    return tmp_path / "sets"


def test_a_suite_file_says_it_for_each_set(folder: Path) -> None:
    told = {
        "protocol": "knn",
        "labels": 30,
        "options": {"knn": {"k": 7}, "linear": {"folds": 3}},
        "sets": {
            "birds": {"path": "sets/birds", "group": "mine", "metric": "macro_f1"},
            "stones": {
                "path": "sets/stones.parquet", "group": "structured", "protocol": "logistic", "labels": 5,
                "image_column": "picture", "label_column": "kind", "linear": {"grid": [0.5]},
                "eval": {"data": {"labels": "sets/table.csv", "group": "quarry"}}, "seed": 4,
            },
            "cells": {"path": "sets/cells", "protocol": "finetune", "fit": {"epochs": 2}, "labels": None},
            "pets": None,
            "cifar10": "sets/birds",
        },
    }  # fmt: skip
    (folder / "table.csv").touch()
    file = folder.parent / "mine.yaml"
    file.write_text(yaml.safe_dump(told, sort_keys=False))
    read = suite(file)
    found = by_name(read)
    assert (read.name, list(found)) == ("mine", list(told["sets"]))
    birds, stones, cells = (found[name].config for name in ("birds", "stones", "cells"))
    assert isinstance(birds, KNNRecipe) and (birds.knn.k, birds.eval.metric) == (7, "macro_f1")
    assert (found["birds"].group, found["birds"].most, found["stones"].most) == ("mine", 30, 5)
    assert isinstance(stones, LinearRecipe) and (stones.linear.protocol, stones.linear.folds) == ("logistic", 3)
    assert (stones.linear.grid, stones.seed) == ((0.5,), 4)
    source = stones.eval.data
    assert (source.image_column, source.label_column, source.group) == ("picture", "kind", "quarry")
    assert source.labels == str(folder / "table.csv")
    assert isinstance(cells, FinetuneRecipe) and cells.fit.epochs == 2
    assert (found["pets"].path, found["pets"].group) == ("timm/oxford-iiit-pet", "natural")
    assert found["pets"].config.eval.data.label_column == "label"
    assert (found["cifar10"].path, found["cifar10"].group) == (str(folder / "birds"), "natural")
    again = read_suite(TransferRecipe("RUN", str(file), transfer=TransferConfig(options={"knn.k": 9})))
    assert isinstance(again.entries[0].config, KNNRecipe) and again.entries[0].config.knn.k == 9


def test_the_suite_file_that_the_page_shows(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "transfer.md").read_text(encoding="utf-8")
    (tmp_path / "my_suite.yaml").write_text(page.partition("```yaml\n")[2].partition("```")[0])
    (tmp_path / "cells.parquet").touch()
    (tmp_path / "my_sets" / "birds").mkdir(parents=True)
    found = by_name(suite(tmp_path / "my_suite.yaml"))
    shown = {name: (entry.protocol.name, entry.group, entry.most) for name, entry in found.items()}
    assert shown == {"cells": ("finetune", "mine", 500), "birds": ("knn", "mine", 100), "pets": ("knn", "natural", 500)}
    cells, birds = found["cells"].config, found["birds"].config
    assert isinstance(cells, FinetuneRecipe) and isinstance(birds, KNNRecipe)
    assert (cells.fit.epochs, cells.eval.metric, cells.eval.data.label_column) == (20, "balanced", "phase")
    assert birds.eval.precision == "fp32"
    for name, known in SUITES.items():
        listed = page.partition(f"| `{name}` | ")[2].partition(" |")[0]
        assert listed == ("these 19" if name == "vtab" else ", ".join(known.sets))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sets: [", "is not valid YAML"),
        ("- pets", "names no sets; it needs a line sets:"),
        ("sets: {}", "names no sets"),
        ("sets: 3", "sets: needs names of sets below it"),
        ("set: {}\nsets: {pets: }", "has the key set, which is none of sets, protocol, labels, options; did you mean"),
        ("sets: {pet: }", "pet has no path, and is none of the sets that are known; did you mean pets?"),
        ("sets: {pets: {grup: a}}", "pets has the key grup, which is none of path, group,"),
        ("sets: {pets: {protocol: cashed}}", "protocol of pets: cashed is none of knn, cached"),
        ("sets: {pets: {knn: {kk: 3}, protocol: knn}}", "pets: unknown option --knn.kk; did you mean --knn.k"),
        ("sets: {pets: {metric: topp}}", "pets: --eval.metric: expected one of auto, top1"),
        ("sets: {pets: {labels: table.csv}}", "pets: labels is a number of labels, and has 'table.csv'"),
        ("sets: {pets: 3}", "pets needs names with values below it, and has 3"),
        ("sets: {pets: {real: no.json}}", "real of pets: there is no file or folder"),
        ("sets: {pets: {backbone: other}}", "pets: backbone is decided by the suite; the network is named behind"),
        ("sets: {pets: {eval: {data: {path: a}}}}", "pets: eval.data.path is decided by the suite; a suite file "
         "says it by path:"),
        ("sets: {pets: {linear.protocol: logistic}}", "linear.protocol is decided by the suite; a suite file says it "
         "by protocol:"),
        ("sets: {pets: {run: {dir: a}}}", "pets: run.dir is decided by the suite; the command has it for all sets"),
        ("sets: {pets: {dry_run: true}}", "pets: dry_run is decided by the suite"),
        ("sets: [pets]\noptions: {linear: {protocol: logistic}}", "options: linear.protocol is decided by the suite"),
        ("sets: {pets: {linear: {protocl: logistic}}}", "pets: unknown option --linear.protocl"),
        ("sets: {pets: {protocol: soup, soup: {rates: []}}}", "pets: --soup.rates: at least one"),
        ("protocol: 3\nsets: [pets]", "protocol of pets: 3 is none of knn, cached"),
        ("protocol: [knn]\nsets: [pets]", "protocol is one name, and has ['knn']"),
        ("sets: {pets: {linear: {3: 1}}}", "pets: unknown option --linear.3"),
        ("sets: {a: {path: [uni]}}", "a: path is a name or a path, and has ['uni']; put it in quotes"),
        ('sets: {a: {path: ""}}', "a: path is a name or a path, and has ''"),
        ("sets: {a: {path: }}", "a: path is a name or a path, and has None"),
        ("sets: {a: {path: birds}}", "a: path: there is no file or folder "),
        ("sets: {a: ./birds/of}", "a: path: there is no file or folder "),
        ("sets: {pets: {real: odd.json}}", "odd.json: the right answers of an image are a list, and 3 is none"),
        ("sets: {pets: {real: real.json, eval: {held_out: true}}}", "eval.held_out judges on a fifth of the training"),
        ("sets: {pets: {eval: {data: {labels: no.csv}}}}", "pets: --eval.data.labels: there is no file or folder"),
        ("sets: {pets: {eval: {data: {root: gone}}}}", "pets: --eval.data.root"),
        ("sets: {pets: {fit: {epochs: 3}}}", "pets: --fit.epochs has no effect with the protocol cached; it is for "
         "aug-mae, aug-dino, attentive, finetune, soup"),
        ("sets: {pets: {linear: {heads: 3}}}", "pets: --linear.heads has no effect with the protocol cached; it is for "
         "attentive"),
        ("sets: {pets: {protocol: finetune, knn: {k: 3}}}", "pets: --knn.k has no effect with the protocol finetune"),
        ("options: {fit.epochs: 3}\nsets: [pets]", "options: no protocol of this suite has fit.epochs; it is for aug-"),
        ("options: {knn.k: 3}\nsets: [pets]", "no protocol of this suite has knn.k"),
    ],
)  # fmt: skip
def test_mistakes_in_a_suite_file(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    (tmp_path / "real.json").write_text("[]")
    (tmp_path / "odd.json").write_text('{"a": 3}')
    with pytest.raises(UserError) as error:
        suite(tmp_path / "mine.yaml")
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_unknown_keys_are_answered_by_keys_that_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("sets: {pets: {backbon: a}}")
    with pytest.raises(UserError) as error:
        suite(tmp_path / "mine.yaml")
    names = str(error.value).partition("which is none of ")[2].split(", ")
    assert {"path", "linear", "fit", "seed"} <= set(names) and not {"backbone", "run", "dry_run"} & set(names)
    with pytest.raises(UserError) as error:
        suite("pets", options={"linear.protocl": "knn"})
    assert "linear.protocol" not in str(error.value).partition("linear.protocl")[2]


def test_what_is_typed_comes_before_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Labels, protocol, options and seed; options of the file's protocol are then left out, which is told."""
    file = folder.parent / "mine.yaml"
    file.write_text(
        "protocol: knn\nlabels: 30\noptions: {knn.k: 7}\nsets:\n"
        "  birds: {path: sets/birds, labels: 5, knn: {k: 3}, seed: 4, eval: {draw: 1}}\n"
        "  cells: {path: sets/cells, protocol: finetune, fit: {epochs: 2}, eval: {labels: 9}}\n"
    )
    as_told = by_name(suite(file))
    assert {name: (e.protocol.name, e.most, e.config.eval.labels) for name, e in as_told.items()} == {
        "birds": ("knn", 5, None), "cells": ("finetune", None, 9),
    }  # fmt: skip
    assert capsys.readouterr().err == ""
    given = TransferConfig(protocol="logistic", labels=20, options={"eval.draw": 2})
    typed = by_name(read_suite(TransferRecipe("RUN", str(file), seed=6, transfer=given)))
    assert {name: (e.protocol.name, e.most, e.config.eval.labels) for name, e in typed.items()} == {
        "birds": ("logistic", 20, None), "cells": ("logistic", 20, None),
    }  # fmt: skip
    assert [(e.config.eval.draw, e.config.seed) for e in typed.values()] == [(2, 6), (2, 6)]
    told = capsys.readouterr().err
    assert "note: birds is judged by logistic instead of knn, without knn.k\n" in told
    assert "note: cells is judged by logistic instead of finetune, without fit.epochs\n" in told


def test_paths_and_groups_of_a_suite_file(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # where no folder sets is
    file = folder.parent / "mine.yaml"
    file.write_text("sets: {birds: {path: sets/birds, group: }, 3: {path: s3://a/b, group: 2}, pets: {group: }}")
    found = by_name(suite(file))
    assert [(e.path, e.group) for e in found.values()] == [
        (str(folder / "birds"), ""), ("s3://a/b", "2"), ("timm/oxford-iiit-pet", ""),
    ]  # fmt: skip
    file.write_text("sets: {birds: {path: sets/brids}, far: {path: owner/name}}")
    with pytest.raises(UserError, match=r"birds: path: there is no file or folder .*sets/brids; did you mean birds"):
        suite(file)  # and no data set of the hub
