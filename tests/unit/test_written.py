"""The table of compare as Markdown, LaTeX and CSV: the same numbers, names without a meaning there, whole files."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ssl_vit.configs import EvalConfig
from ssl_vit.core.errors import UserError
from ssl_vit.core.started import module_of
from ssl_vit.report.cells import Cell, table
from ssl_vit.report.written import Written, as_csv, as_latex, as_markdown, latex, mean_of, of_comparison
from ssl_vit.runs.results import compare, read_results

from made_results import labelled, write


@pytest.fixture
def results(tmp_path: Path) -> list[Path]:
    """Three draws of 10 labels, and all labels, of a method with letters that LaTeX and Markdown read as commands."""
    paths = []
    for draw, value in enumerate((80.0, 90.0, 97.0)):
        path, cfg = tmp_path / "run" / "results" / f"{draw}.json", EvalConfig(labels=10, draw=draw)
        paths.append(write(path, {"M_A&E 50%": value, "raw pixels": 50.0}, cfg=cfg, data=labelled(10)))
    return [*paths, write(tmp_path / "run" / "results" / "all.json", {"M_A&E 50%": 99.0})]


def test_the_three_forms_have_the_same_numbers(results: list[Path]) -> None:
    made = of_comparison(compare(read_results(results)))
    mean = mean_of("top1", [80.0, 90.0, 97.0])
    assert mean.low is not None
    assert mean.high == 100.0  # a share of right answers ends there
    lines = list(csv.DictReader(io.StringIO(as_csv(made))))
    assert [(line["method"], line["labels"], line["n"]) for line in lines] == [
        ("M_A&E 50%", "10", "3"), ("M_A&E 50%", "40", "1"), ("raw pixels", "10", "3")
    ]  # fmt: skip
    assert float(lines[0]["mean"]) == pytest.approx(89.0)
    assert float(lines[0]["low"]) == pytest.approx(mean.low)
    assert lines[1]["low"] == ""
    assert {line["protocol"] for line in lines} == {read_results(results)[0].protocol_hash}
    words = f"89.0 ± 8.5 (3), {mean.low:.1f} to 100.0"
    assert f"| {words} | 99.0 (1) |" in as_markdown(made)
    text = as_latex(made)
    assert r"89.0 $\pm$ 8.5 (3) & 99.0 (1) \\" in text
    assert rf"{{\scriptsize {mean.low:.1f} to 100.0}}" in text
    for form in (as_markdown(made), text):
        assert read_results(results)[0].protocol_hash in form
        assert "95 " in form
        assert "interval" in form


def test_names_are_escaped(results: list[Path]) -> None:
    made = of_comparison(compare(read_results(results)))
    assert r"M\_A\&E 50\%" in as_latex(made)
    assert r"M\_A&amp;E 50%" in as_markdown(made)
    assert "M_A&E 50%" in as_csv(made)


@given(st.text(alphabet=st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=40))
def test_latex_reads_no_letter_as_a_command(text: str) -> None:
    escaped = latex(text)
    known = r"\\text(?:backslash|asciitilde|asciicircum|less|greater|bar)\{\}|\\[{}$&#_%]|\{[\[\]*]\}|-\{\}"
    plain = re.sub(known, "", escaped)
    assert not set(plain) & set("\\{}$&#_%~^<>|")
    assert "--" not in escaped


def test_a_row_that_begins_with_a_bracket_is_no_argument() -> None:
    made = Written(table(("a", "b"), [["one", "1"], ["[2pt]", "2"], ["*", "3"]], 1, head="t"), (), ())
    assert not re.search(r"\\\\\s*[\[*]", as_latex(made))


def test_latex_is_whole() -> None:
    made = Written(table(("m", "n"), [["x", Cell("1", ("0 to 2",))], ["y", "2"]], 1, head="t"), ("note",), ())
    text = as_latex(made)
    for name in ("table", "tabular", "minipage"):
        assert text.count(rf"\begin{{{name}}}") == text.count(rf"\end{{{name}}}") == 1
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert all(len(re.findall(r"(?<!\\)&", line)) == 1 for line in rows)
    assert len(rows) == 4
    assert all(rule in text for rule in (r"\toprule", r"\midrule", r"\bottomrule", "booktabs"))


def test_the_command_writes_what_the_ending_names(
    results: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main = module_of("eval/compare.py").main
    for name, begins in {"t.md": "# photos", "t.tex": "% needs", "T.CSV": "method,"}.items():
        main([str(path) for path in results], str(tmp_path / name))
        assert (tmp_path / name).read_text().startswith(begins)
        assert f"Table: {tmp_path / name}" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"--out t\.xlsx must end in \.csv, \.md or \.tex"):
        main([str(results[0])], "t.xlsx")


def test_a_wrong_ending_is_told_before_anything_is_read(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from ssl_vit.core.started import module_of\n"
        "try:\n"
        "    module_of('eval/compare.py').command(sys.argv[1:])\n"
        "finally:\n"
        "    assert not {'numpy', 'torch', 'rich.table'} & set(sys.modules), 'heavy'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "no-run", "--out", "t.txt"], capture_output=True, text=True, check=False,
        cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "error: --out t.txt must end in .csv, .md or .tex\n")


def test_an_interrupted_table_leaves_the_old_one(
    results: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, path = of_comparison(compare(read_results(results))), tmp_path / "t.tex"
    made.write(path)
    before = path.read_text()

    def die(number: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", die)
    with pytest.raises(KeyboardInterrupt):
        made._replace(notes=()).write(path)
    assert path.read_text() == before


def test_seeds_of_pre_training_are_what_an_interval_is_about() -> None:
    values = [80.0, 80.2, 86.0, 86.2, 83.0, 83.2]
    by_seed = mean_of("top1", values, ["a", "a", "b", "b", "c", "c"])
    alone = mean_of("top1", values)
    assert by_seed.low is not None
    assert alone.low is not None
    assert by_seed.low < alone.low  # two draws of one pre-training are not two pre-trainings
    assert mean_of("top1", [80.0]).low is None
