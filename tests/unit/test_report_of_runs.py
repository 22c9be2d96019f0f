"""Reports of ordinary run directories, and of folders that are none or damaged."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ssl_vit.core.errors import UserError
from ssl_vit.report.cells import Table
from ssl_vit.report.findings.contract import check
from ssl_vit.report.findings.records import read_verdict
from ssl_vit.report.page.content import build
from ssl_vit.report.page.write import open_numbers, write_report

from made_report import Seen, a_run, check_words, run, small
from made_verdict import SMALL, make_verdict


def test_ordinary_runs_make_a_report_that_says_what_is_not_known(tmp_path: Path) -> None:
    for seed in range(3):
        mae = a_run(
            tmp_path / f"mae-{seed}", "knn", {"MAE": 70.0 + seed, "raw pixels": 60.0}, seed=seed, weights=f"w{seed}"
        )
        a_run(mae, "finetune", {"MAE, fine-tuned": 90.0 + seed}, seed=seed, weights=f"w{seed}")
        a_run(tmp_path / f"scratch-{seed}", "supervised", {"from scratch": 80.0 - seed}, seed=seed)
        (mae / "metrics.jsonl").write_text("".join(f'{{"step": {i}, "loss": {1 / i}}}\n' for i in range(1, 9)))
    runs = sorted(tmp_path.glob("*-?"))
    verdict = open_numbers(runs)
    assert [s.value for s in verdict.of("mae", "train")] == [90.0, 91.0, 92.0]
    assert [s.pretraining for s in verdict.of("mae", "knn")] == [0, 1, 2]
    assert [s.value for s in verdict.of("pixels", "knn")] == [60.0]  # the same number of all three runs
    page = write_report(verdict, tmp_path / "out")
    assert [(one.labels, one.name, one.value) for one in page.strip] == [(100, "MAE", "91.0 %")]
    words = "".join(Seen((tmp_path / "out/report.html").read_text()).words)
    check_words(words)
    assert "eval/finetune.py --backbone mae-2" in words and "MAE pre-training" in words
    assert "leak guard has not looked" not in words
    assert "not known whether it was pre-trained on test images" in words
    with pytest.raises(UserError, match="--out"):
        write_report(verdict)
    with pytest.raises(UserError, match=r"is a folder with report\.html"):
        write_report(verdict, tmp_path / "page.html")
    with pytest.raises(UserError, match=r"--out s3://bucket/report is an address"):
        write_report(verdict, "s3://bucket/report")
    write_report(verdict, tmp_path / "out")
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep/report.md").write_text("my notes")
    with pytest.raises(UserError, match=r"has a report\.md that is none of these reports"):
        write_report(verdict, tmp_path / "keep")
    assert (tmp_path / "keep/report.md").read_text() == "my notes"


def test_what_evaluations_recorded_of_seen_test_images_is_told(tmp_path: Path) -> None:
    for seed, seen in enumerate((0, 3)):
        run = a_run(tmp_path / f"mae-{seed}", "knn", {"MAE": 70.0}, seed=seed, weights=f"w{seed}")
        path = next(run.glob("results/*.json"))
        path.write_text(json.dumps(json.loads(path.read_text()) | {"test_images_seen_in_pre_training": seen}))
    for count, kept in ((1, True), (2, False)):
        found = check(open_numbers([tmp_path / f"mae-{seed}" for seed in range(count)]))
        item = next(one for one in found if "among the images to pre-train on" in one.claim)
        assert item.kept is kept
    assert item.reason == "3 test images were among the images that a network was pre-trained on"


def test_several_backbones_on_every_draw_are_paired_by_draw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for draw in range(5):
        for seed in range(3):
            name = {"seed": seed, "weights": f"w{seed}", "draw": draw}
            a_run(tmp_path / f"mae-{seed}-{draw}", "finetune", {"MAE, fine-tuned": 90.0 + draw + seed / 10}, **name)
        a_run(tmp_path / f"scratch-{draw}", "supervised", {"from scratch": 80.0 + draw}, draw=draw)
    verdict = open_numbers(sorted(tmp_path.iterdir()))
    mae = verdict.of("mae", "train")
    assert [s.draw for s in mae] == [s.draw for s in verdict.of("scratch", "train")] == [0, 1, 2, 3, 4]
    assert [s.pretraining for s in mae] == [0, 1, 2, 0, 1]
    assert [s.value for s in mae] == [90.0, 91.1, 92.2, 93.0, 94.1]
    assert "of 15 numbers of mae" in capsys.readouterr().err


def test_variants_of_a_method_have_a_line_each(tmp_path: Path) -> None:
    for ratio in (0.5, 0.75):
        a_run(tmp_path / f"mae-{ratio}", "finetune", {"MAE, fine-tuned": 90.0}, weights=f"w{ratio}", ratio=ratio)
    a_run(tmp_path / "scratch", "supervised", {"from scratch": 80.0})
    page = build(open_numbers(sorted(tmp_path.iterdir())))
    table = next(block for section in page.sections for block in section.blocks if isinstance(block, Table))
    names = ["MAE (mae.mask_ratio 0.5), fine-tuned", "MAE (mae.mask_ratio 0.75), fine-tuned", "from scratch"]
    assert [row[0].text for row in table.rows] == names


def test_what_lies_in_the_current_folder_is_no_part_of_a_report_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = make_verdict(tmp_path / "here", SMALL, labels=(10, 100), images=30)  # with pictures/ and runs/mae-0
    mae = a_run(tmp_path / "elsewhere/mae-0", "knn", {"MAE": 70.0}, weights="w")
    monkeypatch.chdir(here)
    keys = {section.key for section in build(open_numbers([mae])).sections}
    assert "curves" in keys and not {"pictures", "losses"} & keys


def test_a_run_of_other_data_is_refused_by_the_field_that_differs(tmp_path: Path) -> None:
    one = a_run(tmp_path / "one", "knn", {"mae": 70.0}, weights="w")
    other = a_run(tmp_path / "other", "knn", {"mae": 70.0}, weights="v", test="cats")
    with pytest.raises(UserError, match=r"test\.fingerprint t -> cats"):
        open_numbers([one, other])


@pytest.mark.processes
def test_wrong_inputs_are_one_line(tmp_path: Path) -> None:
    folder = small(tmp_path / "v")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/verdict.json").write_text("{")
    (tmp_path / "old").mkdir()
    (tmp_path / "old/verdict.json").write_text('{"format": 0}')
    single = a_run(tmp_path / "single", "knn", {"mae": 70.0}, weights="w")
    cases = [
        (["nothing/there"], "there is no file or folder"), ([tmp_path / "empty"], "holds no results"),
        ([tmp_path / "broken"], "cannot be read as JSON"), ([tmp_path / "old"], "format 0, not format 2"),
        ([folder, single], "cannot be mixed"), ([folder, folder], "cannot be mixed"),
    ]  # fmt: skip
    for given, words in cases:
        with pytest.raises(UserError, match=words) as found:
            open_numbers(given)
        assert "\n" not in str(found.value)
    (single / "environment.json").touch()
    done = run(single.parent / "singel")
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and f"did you mean {single}?" in done.stderr
    done = run(folder, "--out", folder / "verdict.json")
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "is a file" in done.stderr


def test_a_damaged_array_is_named(tmp_path: Path) -> None:
    folder = small(tmp_path / "v")
    path = next(folder.glob("results/*.npz"))
    path.write_bytes(b"half")
    with pytest.raises(UserError, match=re.escape(path.name)):
        read_verdict(folder)
