"""The questions as a user asks them: a tiny whole run, continued without training anything twice."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

SHORT = [
    "--questions.length", "0.004", "--questions.draws", "2", "--questions.labels", "[20]",
    "--questions.doublings", "1", "--questions.jobs", "0", "--questions.budget", "1d", "--run.dir", "q",
]  # fmt: skip
Script = Callable[..., tuple[int, str, str]]


def units(folder: Path) -> dict[str, int]:
    """When every task was done."""
    return {path.stem: path.stat().st_mtime_ns for path in (folder / "units").glob("*.json")}


def test_one_question_is_answered_and_the_same_command_trains_nothing_again(script: Script) -> None:
    only = ["--questions.only", "translation"]
    status, said, err = script("eval/questions.py", *SHORT, *only)
    assert status == 0, err
    folder = Path("q")
    made, trained = units(folder), json.loads((folder / "time.json").read_text())
    nets = ("vit", "hybrid", "cct", "swin", "resnet")
    results = sorted(path.stem for path in (folder / "results").glob("*.npz"))
    assert results == sorted(f"{net}-scratch-1438-labels-draw-{draw}" for net in nets for draw in (0, 1))
    assert sum(name.startswith("look-shifts") for name in made) == 4 * len(nets)
    assert "Page: q/questions.html" in said and "Do features stay where an image is shifted?" in said
    measured = json.loads((folder / "measured.json").read_text())
    rows = measured["questions"]["translation"]["rows"]
    assert len(rows) == 10 and all(point["value"] > 0 for row in rows for point in row["points"][1:])
    assert measured["about"]["failed"] == {} and len(measured["about"]["networks"]) == len(nets)
    parameters = {one["net"]: one["parameters"] for one in measured["about"]["networks"]}
    assert max(parameters.values()) < 1.35 * min(parameters.values())
    page = (folder / "questions.html").read_text()

    status, _, err = script("eval/questions.py", *SHORT, *only)
    assert status == 0, err
    assert units(folder) == made and json.loads((folder / "time.json").read_text()) == trained
    assert (folder / "questions.html").read_text() == page

    lost = "resnet-scratch-1438-labels-draw-1"  # as where it was interrupted
    (folder / "units" / f"{lost}.json").unlink()
    status, _, err = script("eval/questions.py", *SHORT, *only)
    assert status == 0, err
    again = units(folder)
    assert {name for name in again if again[name] != made[name]} == {lost}
    before = json.loads((folder / "measured.json").read_text())["questions"]
    assert before == measured["questions"]  # the same training makes the same numbers

    damaged = folder / "results" / f"{lost}.npz"
    content = damaged.read_bytes()
    damaged.write_bytes(content[:100] + bytes(20) + content[120:])
    status, _, err = script("eval/questions.py", *SHORT, *only)
    assert status == 1 and err.rstrip().endswith(
        f"error: {damaged} is damaged; remove it and type the command again, which makes it anew"
    )
    damaged.unlink()
    status, _, err = script("eval/questions.py", *SHORT, *only)
    assert status == 0, err
    assert json.loads((folder / "measured.json").read_text())["questions"] == measured["questions"]

    status, _, err = script("eval/questions.py", *SHORT, "--questions.only", "learned")
    assert status == 1 and "planned for a budget of" in err and "continue as it was begun" in err


def test_all_questions_in_one_command(script: Script) -> None:
    status, _, err = script("eval/questions.py", *SHORT)
    assert status == 0, err
    folder = Path("q")
    measured = json.loads((folder / "measured.json").read_text())
    assert list(measured["questions"]) == ["data", "bias", "translation", "positions", "learned", "scale"]
    text, plain = ((folder / f"questions.{kind}").read_text() for kind in ("html", "md"))
    assert "<script" not in text and 'src="http' not in text
    figures = {path.stem for path in (folder / "figures").glob("*.png")}
    assert {"data", "bias", "translation", "positions", "positions-maps", "learned", "scale-width", "scale-depth",
            "scale-slopes"} <= figures  # fmt: skip
    assert all(f"figures/{name}.png" in plain for name in figures)
    learned = measured["questions"]["learned"]["rows"]
    assert {row["start"] for row in learned} == {"mae", "dino", "lejepa", "supervised", "random"}
    assert all(
        0 <= point["value"] <= 1 for row in learned if row["measure"] == "information" for point in row["points"]
    )
    scale = measured["questions"]["scale"]["rows"]
    assert {tuple(row["sizes"]) for row in scale} == {(8, 16), (1, 2)}
    assert all(None not in row["flops"] and row["flops"] == sorted(row["flops"]) for row in scale)
    # Every training once: those that questions share are not made again.
    results = [path.stem for path in (folder / "results").glob("*.npz")]
    assert (
        len(results)
        == len(set(results))
        == len(list((folder / "units").glob("*-labels-draw-*.json")))
        - len(list((folder / "units").glob("look-*.json")))
    )
    assert not list((folder / "work").iterdir())
    kept = Path(shutil.copytree(folder, "elsewhere"))
    (kept / "questions.html").unlink()
    from ssl_vit.questions.page import write_page

    write_page(kept)
    assert (kept / "questions.html").read_text() == text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--questions.only", "colour"], "--questions.only colour is none of data, bias"),
        (["--questions.budget", "1s"], "is too short; the least that answers translation takes about"),
        (["--data.window", "4"], "--data.window: the questions permute and shift whole images"),
        (["--questions.draws", "1"], "--questions.draws 1 must be at least 2"),
    ],
)
def test_mistakes_are_told(words: list[str], said: str, script: Script) -> None:
    only = [] if "--questions.only" in words else ["--questions.only", "translation"]
    usual = [word for word in SHORT if words[0] != "--questions.budget" or word not in ("--questions.budget", "1d")]
    status, _, err = script("eval/questions.py", *usual, *only, *words)
    assert status != 0 and said in err


def test_a_plan_alone_trains_nothing(script: Script) -> None:
    status, said, err = script(
        "eval/questions.py", *SHORT, "--questions.only", "translation", "--questions.plan_only=true"
    )
    assert status == 0, err
    assert "plan      " in said and not (Path("q") / "results").exists()
    (Path("q") / "runs" / "pretrain-mae").mkdir(parents=True)  # as where the first training was stopped
    status, _, err = script("eval/questions.py", *SHORT, "--questions.only", "learned", "--questions.plan_only", "true")
    assert status == 1 and "continue as it was begun" in err
    (Path("q") / "plan.json").write_bytes(b"{\xff")
    status, _, err = script("eval/questions.py", *SHORT, "--questions.only", "translation")
    assert status == 1 and "error: q/plan.json is damaged; give --run.dir another folder" in err
