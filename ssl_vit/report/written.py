"""Tables as files for papers and programs: Markdown, LaTeX with booktabs, and CSV with a line for every mean."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ssl_vit.configs.metrics import METRICS, shown
from ssl_vit.core.files import write_atomically
from ssl_vit.core.text import aligned
from ssl_vit.report.cells import NOTHING, Cell, Table, span, table
from ssl_vit.report.page.render import plain
from ssl_vit.runs.results import Comparison
from ssl_vit.statistics.paired import SEEDS, interval

INTERVALS = (
    "with the mean's 95 % interval by Student's t over draws of labels and seeds; chance in the choice of test images "
    f"is not in it, and with fewer than {SEEDS} pre-training seeds it is about those networks only"
)
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''", "±": r"$\pm$", "[": "{[}", "]": "{]}",
    "*": "{*}",  # brackets and stars: none is an argument of the line break before it
}  # fmt: skip


class Mean(NamedTuple):
    """Several values of a metric."""

    metric: str
    mean: float
    sd: float | None
    """None for a single value."""
    n: int
    low: float | None
    """Of the 95 % interval, never beyond what the metric can be; None where nothing measures chance."""
    high: float | None

    @property
    def cell(self) -> Cell:
        """As tables show it."""
        spread = "" if self.sd is None else f" ± {shown(self.metric, self.sd)}"
        words = span(self.metric, self.low, self.high)
        return Cell(f"{shown(self.metric, self.mean)}{spread} ({self.n})", (words,) if words else ())


def mean_of(metric: str, values: Sequence[float], seeds: Sequence[str] | None = None) -> Mean:
    """The mean of values with its interval.

    Args:
        metric: Of ``METRICS``.
        values: At least one.
        seeds: The pre-training that each belongs to; None where all are independent.
    """
    codes = None if seeds is None else np.unique(np.array(seeds), return_inverse=True)[1]
    found = interval(np.array(values, dtype=np.float64)[:, None], codes)
    low, high = found.low, found.high
    if low is not None and high is not None:
        least, most = METRICS[metric].bounds
        low, high = max(low, least), min(high, most)
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Mean(metric, float(np.mean(values)), sd, len(values), low, high)


class Written(NamedTuple):
    """A table in all of its forms."""

    shown: Table
    notes: tuple[str, ...]
    """What gives its numbers their meaning."""
    records: tuple[dict[str, Any], ...]
    """The same as lines of a CSV file, which all have the same names."""

    def text(self) -> str:
        """For the screen: plain columns, and the notes below them."""
        rows = [tuple(", ".join([cell.text, *cell.minor]) for cell in row) for row in self.shown.rows]
        return "\n".join([self.shown.head, aligned([self.shown.headings, *rows]), *self.notes])

    def write(self, path: Path) -> None:
        """Writes the form that the file's ending names: the old file or the new one is there, never half of one.

        Args:
            path: Ends in one of ``runs.results.ENDINGS``.
        """
        write_atomically(path, {".csv": as_csv, ".md": as_markdown, ".tex": as_latex}[path.suffix.lower()](self))


def of_comparison(found: Comparison) -> Written:
    """The table of ``ssl-vit compare``, with intervals.

    Args:
        found: As ``runs.results.compare`` returns it.
    """
    rows: list[list[Cell | str]] = []
    records: list[dict[str, Any]] = []
    for (line, evaluation, *_), numbers in zip(found.rows, found.cells, strict=True):
        row: list[Cell | str] = [line, evaluation]
        for several in numbers:
            if not several:
                row.append(NOTHING)
                continue
            weights = [number.sample[-1] for number in several]
            seeds = None if None in weights else [str(one) for one in weights]
            mean = mean_of(found.metric, [number.value for number in several], seeds)
            row.append(mean.cell)
            about = {"method": line, "evaluation": evaluation, "labels": several[0].labels}
            records.append(about | mean._asdict() | {"protocol": several[0].result.protocol_hash})
        rows.append(row)
    made = table(found.headings, rows, 2, head=found.title)
    return Written(made, (*found.notes, *((INTERVALS,) if _any_interval(made) else ())), tuple(records))


def _any_interval(made: Table) -> bool:
    return any(cell.minor for row in made.rows for cell in row)


def as_csv(found: Written) -> str:
    """A line for every mean.

    Args:
        found: The table.
    """
    text = io.StringIO()
    names = dict.fromkeys(name for record in found.records for name in record)
    lines = csv.DictWriter(text, list(names), lineterminator="\n")
    lines.writeheader()
    lines.writerows(found.records)
    return text.getvalue()


def as_markdown(found: Written) -> str:
    """A document: title, table, notes.

    Args:
        found: The table.
    """
    made = found.shown
    ends = ["---"] * made.numbers + ["---:"] * (len(made.headings) - made.numbers)
    rows = [[plain(", ".join([cell.text, *cell.minor])) for cell in row] for row in made.rows]
    lines = [f"| {' | '.join(cells)} |" for cells in ([plain(h) for h in made.headings], ends, *rows)]
    return "\n".join([f"# {plain(made.head)}", "", *lines, "", *(f"- {plain(note)}" for note in found.notes), ""])


def as_latex(found: Written) -> str:
    r"""A ``table`` for ``\input`` that needs the package booktabs: title as caption, notes below.

    Args:
        found: The table.
    """
    made = found.shown
    lines: list[str] = []
    for row in made.rows:
        lines.append(" & ".join(latex(cell.text) for cell in row) + r" \\")
        for i in range(max(len(cell.minor) for cell in row)):
            small = [rf"{{\scriptsize {latex(c.minor[i])}}}" if i < len(c.minor) else "" for c in row]
            lines.append(" & ".join(small) + r" \\")
    columns = "l" * made.numbers + "r" * (len(made.headings) - made.numbers)
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{latex(made.head)}}}",
            rf"  \begin{{tabular}}{{{columns}}}",
            r"    \toprule",
            f"    {' & '.join(latex(heading) for heading in made.headings)} \\\\",
            r"    \midrule",
            *(f"    {line}" for line in lines),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"  \par\medskip",
            r"  \begin{minipage}{\linewidth}\footnotesize\raggedright",
            *(f"    {latex(note)}.\\par" for note in found.notes),
            r"  \end{minipage}",
            r"\end{table}",
            "",
        ]
    )


def latex(text: str) -> str:
    """Text in which nothing is a command of LaTeX.

    Args:
        text: Of any letters.
    """
    escaped = "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split()))
    return escaped.replace("--", "-{}-")
