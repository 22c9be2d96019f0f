"""A report shows what the folder holds: all of it, escaped, on one page without network, and again without torch."""

from __future__ import annotations

import base64
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ssl_vit.report.cells import Table
from ssl_vit.report.charts import plots
from ssl_vit.report.charts.canvas import for_page
from ssl_vit.report.findings import classes, tables
from ssl_vit.report.findings.facts import provenance_rows, typed
from ssl_vit.report.findings.recommendation import Recommendation
from ssl_vit.report.findings.records import read_verdict
from ssl_vit.report.look import KINDS
from ssl_vit.report.page.blocks import Choice
from ssl_vit.report.page.content import build
from ssl_vit.report.page.render import html, markdown, typeset
from ssl_vit.report.page.write import write_report
from ssl_vit.runs.provenance import command
from ssl_vit.statistics.advice import Advice, Attribution, Way

from made_report import CLASSES, EVIL, Seen, check_words, run, small, written
from made_verdict import DIGITS, SMALL, make_verdict, no_leaks, png

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = ["curves", "attribution", "cost", "leaks", "pictures", "classes", "data", "training", "contract",
            "provenance"]  # fmt: skip


def leaks() -> dict[str, Any]:
    def shown(name: str, where: str) -> dict[str, Any]:
        return {"set": name, "position": 1, "where": where, "png": base64.b64encode(png((9, 9, 9), 8, 8)).decode()}

    sentence = f"1 of 30 test images has a near duplicate in the training images, {EVIL}."
    return no_leaks(
        findings=[{"kind": "near", "between": "test-train", "pairs": 1, "images": 1, "leak": True, "test": [1],
                   "sentence": sentence}],
        sentences=[sentence], affected=[1], affected_images=[f"test/{EVIL}.png"],
        examples=[{"kind": "near", "between": "test-train", "distance": 0.07, "change": "mirrored", "same_file": None,
                   "first": shown("test", f"test/{EVIL}.png"), "second": shown("train", "train/'b'.png")}],
    )  # fmt: skip


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A verdict on data whose every name is an attack."""
    folder = small(tmp_path_factory.mktemp("hostile") / "v", title=f"digits {EVIL}", leaks=leaks())
    about = json.loads((folder / "verdict.json").read_text())
    about["left_out"] = {EVIL: EVIL}
    about["provenance"]["command"] = f"eval/verdict.py --data.path '{EVIL}' | `x`"
    about["methods"]["mae"]["name"] = "MAE <b>|"
    (folder / "verdict.json").write_text(json.dumps(about))
    told = json.loads((folder / "pictures/pictures.json").read_text())
    told[0] |= {"title": EVIL, "caption": EVIL}
    outside = folder / "secret.png"
    outside.write_bytes(png((1, 2, 3), 4, 4))
    told += [{"file": "../secret.png", "title": "outside", "caption": "", "start": None}]
    (folder / "pictures/text.png").write_text("no picture")
    told += [{"file": "text.png", "title": "no picture", "caption": "", "start": None}]
    told += [{"file": None, "title": "Mistakes", "caption": "were made.", "start": "mae"}]
    (folder / "pictures/pictures.json").write_text(json.dumps(told))
    write_report(read_verdict(folder))
    return folder


@pytest.fixture(scope="module")
def page(hostile: Path) -> str:
    return (hostile / "report.html").read_text()


@pytest.fixture(scope="module")
def seen(page: str) -> Seen:
    return Seen(page)


def test_one_page_without_script_or_network(page: str, seen: Seen) -> None:
    assert "script" not in seen.tags and not [name for name, _ in seen.attributes if name.startswith("on")]
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in seen.values("content")
    assert "link" not in seen.tags and "iframe" not in seen.tags and "@import" not in page
    for name in ("src", "href", "action", "xlink:href"):
        assert all(value.startswith(("#", "data:image/png;base64,")) for value in seen.values(name))
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", page))


def test_every_section_is_there_in_order(seen: Seen) -> None:
    ids = seen.values("id")
    assert [name for name in ids if name in SECTIONS] == SECTIONS
    assert len(ids) == len(set(ids)) and {f"#{name}" for name in SECTIONS} <= set(seen.values("href"))


def test_names_are_text_and_nothing_else(page: str, seen: Seen, hostile: Path) -> None:
    words = "".join(seen.words)
    assert EVIL not in page and words.count(EVIL) >= 4 and "MAE <b>|" in words
    assert CLASSES[2] in words and any(CLASSES[2] in label for label in seen.values("aria-label"))
    check_words(words)
    markdown = (hostile / "report.md").read_text()
    unquoted = re.sub(r"`[^`]*`", "", markdown)
    assert "<script" not in unquoted and "<b>" not in unquoted
    check_words(markdown)
    for table in re.findall(r"(?:^\|.*\n)+", markdown, flags=re.M):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_only_pictures_of_the_folder_are_shown(seen: Seen) -> None:
    assert len([alt for alt in seen.values("alt") if "Most confident" in alt]) == 1
    assert "outside" not in seen.values("alt") and "no picture" not in seen.values("alt")
    assert len(seen.values("src")) == 4  # two pictures, two thumbnails of a leak
    assert "Mistakes (MAE <b>|): were made." in "".join(seen.words)  # what is not drawn is told


def test_a_leak_is_told_at_the_top(seen: Seen) -> None:
    words = "".join(seen.words)
    assert words.index("has a near duplicate in the training images") < words.index("images to pre-train on")


def test_charts_take_their_colours_from_the_page(page: str) -> None:
    charts = re.findall(r'<svg viewBox="[^"]+" role="img".*?</svg>', page, flags=re.S)
    assert len(charts) >= 5 and not [chart for chart in charts if re.search(r"#[0-9a-f]{6}\b", chart)]
    assert all("<text" in chart and 'aria-label="' in chart for chart in charts)
    assert "prefers-color-scheme: dark" in page and "@media print" in page


def test_a_name_that_looks_like_a_colour_stays_one() -> None:
    svg = for_page('<svg viewBox="0 0 1 1"><text style="fill: #66666b">#66666b</text></svg>', "x", "a #66666b")
    assert 'aria-label="a #66666b"' in svg and svg.endswith('<text style="fill: var(--muted)">#66666b</text></svg>')


def test_markdown_names_pictures_that_exist(hostile: Path) -> None:
    pictures = re.findall(r"!\[(.*?)\]\((.*?)\)", (hostile / "report.md").read_text())
    assert len(pictures) >= 3
    for alt, path in pictures:
        assert len(alt) > 20 and (hostile / path).read_bytes().startswith(b"\x89PNG")


def test_every_number_has_its_command(seen: Seen, hostile: Path) -> None:
    scores = read_verdict(hostile).scores
    assert f"{len(scores) + 3} commands" in "".join(seen.words)  # and three pre-trainings
    assert "".join(seen.words).count("--eval.draw") == len(scores)


@pytest.mark.parametrize(
    "options",
    [
        {"leaks": None},
        {"draws": (1, 1)},
        {"longer": None},
        {"seeds": 1, "transductive": True},
        {"curves": {("mae", "knn"): (60.0, 70.0)}},
        {"curves": {("scratch", "train"): (60.0, 70.0)}},
        {"kind": "regression", "metric": "mean_absolute_error"},
        {"kind": "multilabel", "metric": "average_precision", "units": False},
        {"grouped": True, "labels": (50,), "curves": {("scratch", "train"): (60.0,), ("mae", "train"): (70.0,)}},
    ],
    ids=str,
)
def test_a_report_without_what_is_optional(tmp_path: Path, options: dict[str, Any]) -> None:
    page, seen, markdown = written(small(tmp_path / "v", **options))
    words = "".join(seen.words)
    check_words(words, markdown)
    assert ("Rows are true classes" in words) == (options.get("kind", "class") == "class")
    assert ("transductive" in words) == bool(options.get("transductive"))
    assert page.count('<li style="--ground') == len(options.get("labels", (10, 100)))  # always a recommendation
    assert ("nothing else was tried" in words) == (("mae", "knn") in options.get("curves", {}))


def test_bare_numbers_make_a_report(tmp_path: Path) -> None:
    folder = small(tmp_path / "v")
    about = json.loads((folder / "verdict.json").read_text())
    for part in ("plan", "tuning", "provenance", "left_out", "draws"):
        about.pop(part)
    for method in about["methods"].values():
        method.pop("pretraining")
    about["data"], about["test"] = {"name": "digits"}, {"labels": None, "clusters": None}
    (folder / "verdict.json").write_text(json.dumps(about))
    (folder / "pictures/pictures.json").unlink()
    _, seen, markdown = written(folder)
    check_words("".join(seen.words), markdown)
    assert not {"training", "pictures"} & set(seen.values("id"))


def test_many_classes_become_a_table_of_those_confused(tmp_path: Path) -> None:
    folder = small(tmp_path / "v", classes=tuple(f"class {i}" for i in range(40)), images=400)
    verdict = read_verdict(folder)
    assert plots.confusion_chart(verdict) is None
    pairs = classes.most_confused(verdict)
    assert len(pairs) == 20 and pairs == sorted(pairs, key=lambda pair: -pair[2]) and all(t != p for t, p, *_ in pairs)
    (told,) = [s for s in build(verdict).sections if s.key == "classes"]
    assert [type(block) for block in told.blocks] == [Table, Table]
    assert len(classes.class_rows(verdict).rows) == 13  # the six best, dots, the six worst


def test_confusions_are_those_of_the_predictions(tmp_path: Path) -> None:
    verdict = read_verdict(small(tmp_path / "v", longer=None))
    counts = next(c for one, c in classes.confusions(verdict) if one.start == "scratch")
    truth = np.array(verdict.about["test"]["labels"])
    scores = verdict.of("scratch", "train", 100)
    assert counts.sum() == 30 * 3 and counts[1].sum() == 10 * 3
    assert counts[0, 2] == sum(int(((truth == 0) & (np.asarray(s.predicted) == 2)).sum()) for s in scores)


def test_intervals_of_classes_stay_between_0_and_100(tmp_path: Path) -> None:
    curves = {("scratch", "train"): (99.99, 99.99), ("mae", "train"): (99.99, 99.99)}
    rows = classes.class_rows(read_verdict(small(tmp_path / "v", curves))).rows
    assert [row[1].text for row in rows] == ["100.0"] * 3
    assert {row[1].minor for row in rows} == {("72.2 to 100.0",)}  # ten images each, all right


def test_cost_counts_all_devices_of_pre_training_and_of_training(tmp_path: Path) -> None:
    folder = small(tmp_path / "v")
    for path in folder.glob("results/*.json"):
        told = json.loads(path.read_text())
        told["verdict"]["cost"]["devices"] = 4
        path.write_text(json.dumps(told))
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in tables.cost_rows(read_verdict(folder)).rows}
    assert rows["from scratch"] == ["56 s", "12,800", "560 GFLOP", "0.41 GB"]  # 4 x 14 s
    assert rows["MAE, fine-tuned"] == ["87 s", "588,000", "31.6 TFLOP", "0.52 GB"]  # and 31 s
    assert rows["from scratch, at the cost of pre-training"][2] == "31.6 TFLOP"


@pytest.mark.processes
def test_the_script_makes_the_same_files_again_without_torch(tmp_path: Path) -> None:
    folder = small(tmp_path / "v")
    write_report(read_verdict(folder))
    first = {
        p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.name.startswith(("report", "curves"))
    }
    assert len(first) == 3
    done = run(folder, "--out", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    assert {name: (tmp_path / "again" / name).read_bytes() for name in first} == first
    assert str(tmp_path / "again" / "report.html") in done.stdout


def test_the_strip_says_for_every_number_of_labels_what_to_use(tmp_path: Path) -> None:
    verdict = read_verdict(small(tmp_path / "v", {**SMALL, ("pixels", "knn"): (60.0, 99.0)}, images=300))
    way, other = Way("mae", "train"), Way("pixels", "knn")
    advice = (
        Advice(10, way, 70.04, 61.0, 79.0, (other, way, Way("mae", "knn")), (), False),
        Advice(100, other, 99.0, None, None, (other,), (way,), True, "too few to tell: 1 draw"),
    )
    page = build(verdict, Recommendation(advice, (), ("With 10 labels: MAE.", "With 100: raw pixels."), "It pays."))
    assert page.sentence == "With 10 labels: MAE. With 100: raw pixels." and page.beside[0] == "It pays."
    assert page.strip == (
        Choice(10, "mae", "MAE", "fine-tuned", "made", "70.0 %", "61.0 to 79.0", "2 others may be as good",
               "more draws may change this"),
        Choice(100, "pixels", "raw pixels", "k-NN", "none", "99.0 %", "", "nothing else is as good",
               "too few to tell: 1 draw"),
    )  # fmt: skip
    text = html(page)
    body = text[text.index("<body>") :]
    first, second = re.findall(r"<li style=\"--ground: var\(--k-(\w+)\)\">(.*?)</li>", body, flags=re.S)
    assert (first[0], second[0]) == ("made", "none")
    assert KINDS["none"].name in second[1] and "pre-trained</a> here" in first[1]  # readable without colour
    assert body.index('class="advice"') < body.index('class="lede"') < body.index("<section")  # above everything else
    line = "| 10 | MAE, fine-tuned | 70.0 % | 61.0 to 79.0 | pre-trained here | 2 others may be as good; more draws may"
    assert line in markdown(page) and markdown(page).index(line) < markdown(page).index("It pays.")


def test_the_table_marks_what_is_as_good_as_the_best(tmp_path: Path) -> None:
    verdict = read_verdict(small(tmp_path / "v"))
    way, longer = Way("mae", "knn"), Way("scratch+", "train")
    rows = tables.all_numbers(verdict, [Advice(10, way, 70.0, 60.0, 80.0, (longer, way), (), True)]).rows
    assert {row[0].text for row in rows if row[1].strong} == {"MAE, k-NN", "from scratch, at the cost of pre-training"}
    assert [row[0].text for row in rows if "advised" in row[1].minor] == ["MAE, k-NN"]
    assert not any(row[2].strong or "advised" in row[2].minor for row in rows)


def test_a_claim_is_only_made_where_none_was_refused(tmp_path: Path) -> None:
    verdict, sides = read_verdict(small(tmp_path / "v")), (Way("mae", "train"), Way("scratch+", "train"))
    told = (
        Attribution(10, 9.0, 4.0, 14.0, 0.01, "", *sides),
        Attribution(20, -9.0, -14.0, -4.0, 0.01, "", *sides),
        Attribution(50, 2.0, -1.0, 5.0, 0.2, "", *sides),
        Attribution(100, None, refused="the baseline was not tuned"),
    )
    rows = [[cell.text for cell in row] for row in tables.attribution_rows(verdict, told).rows]
    names = ["MAE, fine-tuned", "from scratch, at the cost of pre-training"]
    assert rows == [
        ["10", *names, "a gain", "+9.0", "0.010"], ["20", *names, "a loss", "-9.0", "0.010"],
        ["50", *names, "no clear difference", "+2.0", "0.20"],
    ]  # of the last, a sentence tells  # fmt: skip


def test_commands_are_those_of_a_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(ROOT / "eval/verdict.py"), "--data.path", "my images"])
    assert command() == "eval/verdict.py --data.path 'my images'"
    monkeypatch.setattr(sys, "argv", ["/elsewhere/mine.py"])
    assert command() == "/elsewhere/mine.py"
    assert typed("/tmp/a b/eval/verdict.py --run.dir v") == "accelerate launch eval/verdict.py --run.dir v"
    assert typed("accelerate launch /x/recipes/mae.py") == "accelerate launch recipes/mae.py"
    assert typed("accelerate launch eval/knn.py --backbone /x/eval/old.py") == (
        "accelerate launch eval/knn.py --backbone /x/eval/old.py"
    )
    assert typed("vit_small.dino") == "vit_small.dino"
    folder = small(tmp_path / "v")
    about = json.loads((folder / "verdict.json").read_text())
    about["provenance"]["command"] = "/home/someone/ssl_vit/eval/verdict.py --data.path '/data/my images'"
    about["left_out"] = {"public": "vit.dino could not be downloaded (LocalEntryNotFoundError) and is not in the cache"}
    about["plan"]["notes"] = ["options are tuned with 1,438 labels only"]
    (folder / "verdict.json").write_text(json.dumps(about))
    _, seen, markdown = written(folder)
    for words in ("".join(seen.words).replace("\N{NO-BREAK SPACE}", " "), markdown.replace("\\", "")):
        assert (
            "/home/someone" not in words and "accelerate launch eval/verdict.py --data.path '/data/my images'" in words
        )
        assert "Public weights were left out: vit.dino could not be downloaded and is not in the cache." in words
        assert "Options are tuned with 1,438 labels only." in words


def test_numbers_of_another_session_say_what_made_them(tmp_path: Path) -> None:
    folder = small(tmp_path / "v")
    here = json.loads((folder / "verdict.json").read_text())["provenance"]
    first, second, *others = sorted((folder / "results").glob("*.json"))
    for path in others:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"made_with": here}))
    before = here | {"commit": "c0ffee", "versions": here["versions"] | {"torch": "2.14.1"}, "command": "another"}
    for path in (first, second):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"made_with": before}))
    rows = [row for row in provenance_rows(read_verdict(folder)).rows if row[0].text == "made otherwise"]
    words = f"2 of {2 + len(others)} numbers: commit c0ffee instead of 485a61f; versions.torch 2.14.1 instead of 2.15.0"
    assert [row[1].text for row in rows] == [words]


def test_the_numbers_of_the_page_are_those_of_the_folder(tmp_path: Path) -> None:
    verdict = read_verdict(make_verdict(tmp_path / "v", DIGITS, draws=(2, 2), images=60, leaks=no_leaks()))
    rows = {row[0].text: [cell.text for cell in row] for row in tables.all_numbers(verdict, ()).rows}
    for words, start, use in (("MAE, fine-tuned", "mae", "train"), ("raw pixels, k-NN", "pixels", "knn")):
        means = [np.mean([s.value for s in verdict.of(start, use, count)]) for count in verdict.about["labels"]]
        assert rows[words][1:] == [f"{mean:.1f}" for mean in means]
    assert list(rows)[:2] == ["MAE, fine-tuned", "DINO, fine-tuned"]


def test_typesetting_escapes_and_keeps_numbers_together() -> None:
    words = typeset("gain -0.6 points <b> (95 % interval 17-30 %) of k-NN, fine-tuned 2-px, 1e-3")
    assert "\N{MINUS SIGN}0.6\N{NO-BREAK SPACE}points" in words and "&lt;b&gt;" in words
    assert '<span class="ci">(95\N{NO-BREAK SPACE}% interval 17' in words and "\N{EN DASH}" in words
    assert "k\N{NON-BREAKING HYPHEN}NN, fine-tuned 2-px, 1e-3" in words


def test_the_baseline_at_the_cost_of_pre_training_stands_in_the_curves(tmp_path: Path) -> None:
    verdict = read_verdict(small(tmp_path / "v", longer=(60.0, 99.0)))
    chart = plots.curves(verdict)
    assert chart is not None and len(chart.svgs) == 2 and "var(--c-longer)" in chart.svgs[1]
    assert "from scratch, at the cost of pre-training" in chart.alt
    assert [one.name for one in classes.compared(verdict)][1] == "from scratch, at the cost of pre-training"
