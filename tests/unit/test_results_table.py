"""README's table of results is made from the files of measured numbers."""

from __future__ import annotations

import json
import statistics

from made_pages import script_of

make_results = script_of("make_results")


def test_the_table_is_that_of_the_files() -> None:
    assert make_results.README.read_text(encoding="utf-8") == make_results.readme(), "run python docs/make_results.py"


def test_a_cell_is_the_mean_over_the_draws_of_one_way() -> None:
    rows = json.loads((make_results.RESULTS / "cells16.json").read_text())["rows"]
    values = [
        row["balanced"] for row in rows
        if row["method"] == "MAE" and row["protocol"] == "fine-tuning" and row["labels"] == 641
    ]  # fmt: skip
    assert len(values) > 1
    told = f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"
    line = next(
        line for line in make_results.table().splitlines() if line.startswith("| [cells in flow]") and "641" in line
    )
    assert line.split(" | ")[2] == told
