"""What a suite came to: a row for each set, a mean for each group of sets; as text and Markdown. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from ssl_vit.configs.metrics import METRICS, shown
from ssl_vit.configs.suites import GROUPS
from ssl_vit.runs.results import is_held_out

COLUMNS = {
    "set": "set", "group": "group", "evaluation": "evaluation", "labels": "labels", "images": "test images",
    "metric": "metric", "value": "value",
}  # fmt: skip
"""Keys and headings."""


@dataclass(frozen=True)
class Row:
    """One set."""

    name: str
    group: str
    evaluation: str
    heading: str = "-"
    """Of the metric."""
    value: float | None = None
    """None where the set failed, or the metric is not defined on its test images."""
    shown: str = "-"
    percent: bool = True
    """Whether the value may be averaged with others."""
    labels: int = 0
    images: int = 0
    """That were judged."""
    note: str = ""
    """What has to be known of the value."""
    failed: str = ""
    """Why there is none."""
    result: str = ""
    """The result file."""
    kept: bool = False
    """Whether it was there before."""


_HELD_OUT = "judged on held-out labels, not on test images"


def row_of(name: str, group: str, judged: Any, **told: Any) -> Row:
    """A set's row from its result file: of the backbone's rows the one that the protocol is about (of knn, k = 20).

    Args:
        name: Of the set.
        group: Its group.
        judged: A ``runs.results.Result``.
        **told: Other fields.
    """
    metric = str(judged.protocol["metric"])
    first = next((one for one in judged.rows if one.get("headline", True)), judged.rows[0])
    about, value = METRICS[metric], first.get(metric)
    return Row(
        name, group, judged.method, about.heading, value, "not defined" if value is None else shown(metric, value),
        about.percent, judged.labels_used, int(first.get("images") or 0),
        "; ".join(filter(None, (_HELD_OUT if is_held_out(judged) else "", _unread(first)))), **told,
    )  # fmt: skip


def _unread(row: dict[str, Any]) -> str:
    """How many test images could not be read; empty where all could."""
    lost = len(row.get("unreadable_test_images") or ())
    are = "image could not be read and is" if lost == 1 else "images could not be read and are"
    return f"{lost:,} test {are} left out" if lost else ""


class Mean(NamedTuple):
    """The mean over some sets."""

    group: str
    """Empty for all sets."""
    value: float | None
    """None where no set has a number in percent."""
    sets: int
    """That are in it."""
    of: int
    """That it is about."""


def means(rows: Sequence[Row]) -> list[Mean]:
    """The mean of every named group, in the order of VTAB's and then as they come, and that of all sets.

    Numbers in percent are averaged, whatever their metric; others, and sets that failed, are in no mean.

    Args:
        rows: Of all sets.
    """
    groups = dict.fromkeys(group for group in (*GROUPS, *(row.group for row in rows)) if group)
    found = [_mean(group, [row for row in rows if row.group == group]) for group in groups]
    return [*(one for one in found if one.of), _mean("", rows)]


def _mean(group: str, rows: Sequence[Row]) -> Mean:
    values = [row.value for row in rows if row.value is not None and row.percent]
    return Mean(group, sum(values) / len(values) if values else None, len(values), len(rows))


class Transfer(NamedTuple):
    """The table."""

    title: str
    rows: tuple[Row, ...]
    means: tuple[Mean, ...]
    notes: tuple[str, ...]

    @property
    def lines(self) -> list[dict[str, str]]:
        """Rows of cells, the means last."""
        found = [
            {"set": row.name, "group": row.group or "-", "evaluation": row.evaluation,
             "labels": "-" if row.failed else f"{row.labels:,}", "images": "-" if row.failed else f"{row.images:,}",
             "metric": row.heading, "value": "failed" if row.failed else row.shown}
            for row in self.rows
        ]  # fmt: skip
        for mean in self.means:
            value = "-" if mean.value is None else f"{mean.value:.1f}"
            some = f" ({mean.sets} of {mean.of})" if mean.sets < mean.of else ""
            about = f"mean of {mean.group or 'all sets'}{some}"
            found.append({**dict.fromkeys(COLUMNS, ""), "set": about, "value": value})
        return found

    def markdown(self) -> str:
        """The table as a Markdown document."""
        rules = ["---" if key in ("set", "group", "evaluation", "metric") else "---:" for key in COLUMNS]
        rows = [[line[key].replace("|", "\\|") for key in COLUMNS] for line in self.lines]
        table = ["| " + " | ".join(cells) + " |" for cells in (list(COLUMNS.values()), rules, *rows)]
        return "\n".join([f"# {self.title}", "", *table, "", *(f"- {note}" for note in self.notes), ""])

    def data(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "title": self.title, "sets": [asdict(row) for row in self.rows],
            "means": [mean._asdict() for mean in self.means], "notes": list(self.notes),
        }  # fmt: skip


def transfer_table(title: str, rows: Sequence[Row]) -> Transfer:
    """The table of a suite, with what has to be said of its numbers.

    Args:
        title: What was judged on what.
        rows: Of all sets, in their order.
    """
    metrics = list(dict.fromkeys(row.heading for row in rows if row.value is not None and row.percent))
    apart = [row for row in rows if row.value is not None and not row.percent]
    notes = [f"{row.name}: {row.note}" for row in rows if row.note]
    notes += [f"{row.name} failed: {row.failed}" for row in rows if row.failed]
    if len(metrics) > 1:
        notes.append(f"means are over values of several metrics: {', '.join(metrics)}")
    if apart:
        told = ", ".join(f"{row.name} ({row.heading})" for row in apart)
        notes.append(f"in no mean, because it is not in percent: {told}")
    protocols = list(dict.fromkeys(row.evaluation for row in rows if not row.failed))
    if len(protocols) > 1:
        notes.append(f"values of different evaluations cannot be compared: {', '.join(protocols)}")
    notes.append("one number per set, no interval: a mean over these sets says nothing of others")
    return Transfer(title, tuple(rows), tuple(means(rows)), tuple(notes))
