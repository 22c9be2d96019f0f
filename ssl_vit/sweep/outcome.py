"""The table that a sweep ends with: a line for every setting, means over seeds, and what may be chosen by it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ssl_vit.configs.metrics import METRICS, shown
from ssl_vit.core.started import typed
from ssl_vit.methods import LABELLED
from ssl_vit.report.cells import NOTHING, Cell, signed_value, span, table
from ssl_vit.report.written import Written, mean_of
from ssl_vit.runs.identity import digest
from ssl_vit.runs.listing import Run, last_line, read
from ssl_vit.runs.networks import weights_hash
from ssl_vit.runs.results import Result, is_held_out
from ssl_vit.runs.telling import numbers
from ssl_vit.statistics.paired import interval
from ssl_vit.sweep.plan import Child, Plan

FILES = ("table.csv", "table.md", "table.tex")
_NOTES = (
    "mean ± standard deviation over seeds (how many), then the mean's 95 % interval by Student's t; chance in the "
    "choice of judged images is not in it",
    "losses may be compared only where what is varied leaves the loss what it is",
)


class Column(NamedTuple):
    """One kind of number: all of one column are about the same images, by the same metric."""

    evaluation: str
    metric: str
    labels: int
    draw: int | None
    fingerprint: str
    split: str
    held_out: bool
    options: str
    """Of judging, of a pre-trained network: none of them is varied. Empty where training is a part of it."""

    @property
    def heading(self) -> str:
        """Above it."""
        draw = "" if self.draw is None else f", draw {self.draw}"
        where = "held out" if self.held_out else "test images"
        return f"{self.evaluation} {METRICS[self.metric].heading}, {self.labels:,} labels{draw}, {where}"


class Outcome(NamedTuple):
    """The table, and what is said of it."""

    written: Written
    said: tuple[str, ...]


Values = dict[Column, dict[str, dict[int, float]]]
"""By setting and seed."""


def outcome(plan: Plan, failed: Mapping[Child, str]) -> Outcome:
    """What came out so far.

    Args:
        plan: The runs.
        failed: Those that cannot go on, and why.
    """
    done = {child: run for child in plan.children if isinstance(run := read(child.folder), Run) and run.state == "done"}
    results = {child: _own(run) for child, run in done.items() if child not in failed}
    values: Values = {}
    for child, several in results.items():
        for result in several:
            heads = _heads(result)
            if heads:
                by_setting = values.setdefault(_column(result, child), {})
                by_setting.setdefault(child.setting, {})[child.seed] = next(iter(heads.values()))
    rows: list[list[Cell | str]] = []
    records: list[dict[str, Any]] = []
    for setting in plan.settings:
        own = [child for child in plan.children if child.setting == setting]
        ended = [child for child in own if child in done and child not in failed]
        losses = [float(last_line(child.folder / "metrics.jsonl").get("loss", "nan")) for child in ended]
        about = {"setting": setting, "runs": len(ended), "loss": float(np.mean(losses)) if losses else None}
        row: list[Cell | str] = [setting or "as given", f"{len(ended)} of {len(own)}"]
        row.append(f"{about['loss']:.4g}" if losses else NOTHING)
        for column, by_setting in values.items():
            if setting not in by_setting:
                row.append(NOTHING)
                continue
            mean = mean_of(column.metric, list(by_setting[setting].values()))
            row.append(mean.cell)
            judged = {"evaluation": column.evaluation, "labels": column.labels, "draw": column.draw,
                      "judged_on": "held out" if column.held_out else "test"}  # fmt: skip
            records.append(about | judged | mean._asdict())
        rows.append(row)
        if not any(setting in by_setting for by_setting in values.values()):
            records.append(about)
    images = ", ".join(dict.fromkeys(run.data for run in done.values())) or "no images yet"
    head = f"{plan.asked.command} on {images}: {len(plan.settings)} setting(s), {plan.asked.seeds} seed(s) each"
    headings = ("setting", "runs", "last loss", *(column.heading for column in values))
    notes = (
        *_NOTES[0 if values else 1 :],
        *(f"{column.heading}: {column.split}; {_protocols(column, results)}" for column in values),
        *_otherwise(values),
        *_beside(results),
        *(f"failed: {child.name}: {why}" for child, why in failed.items()),
    )
    written = Written(table(headings, rows, 1, head=head), notes, tuple(records))
    return Outcome(written, tuple(_chosen(plan, values)))


def _own(run: Run) -> list[Result]:
    """What its network was judged to be, and not one that was exported before the run was made longer."""
    found = numbers(run).results
    if run.method in LABELLED:  # what it began with is on record there
        return found
    try:
        weights = weights_hash(run.path / "backbone")
    except OSError:
        return found
    return [one for one in found if one.backbone is None or one.backbone.get("weights") in (None, weights)]


_JUDGING = ("knn", "linear")
"""Groups of options in a protocol that only a command typed by hand varies among pre-trained networks."""


def _column(result: Result, child: Child) -> Column:
    test = result.protocol["test"]
    options = {name: result.protocol.get(name) for name in _JUDGING}
    return Column(
        result.method, str(result.protocol["metric"]), result.labels_used, result.draw, str(test.get("fingerprint")),
        str(test.get("split")), is_held_out(result), digest(options) if child.judged_by else "",
    )  # fmt: skip


def _heads(result: Result) -> dict[str, float]:
    """The leading value of what was judged, the run's own first."""
    metric = result.protocol["metric"]
    rows = (row for row in result.rows if row.get("headline", True) and row.get(metric) is not None)
    return {row["method"]: float(row[metric]) for row in rows}


def _protocols(column: Column, results: Mapping[Child, Sequence[Result]]) -> str:
    """By which hashes the numbers of a column may be compared elsewhere."""
    of = [r.protocol_hash for child, several in results.items() for r in several if _column(r, child) == column]
    known = dict.fromkeys(of)
    return f"protocol {', '.join(known)}" + (" (what is varied is part of it)" if len(known) > 1 else "")


def _otherwise(values: Values) -> list[str]:
    """Where networks were judged by different options, as by a command that was typed for one of them."""
    columns: dict[Column, list[str]] = {}
    for column, by_setting in values.items():
        columns.setdefault(column._replace(options=""), []).append(", ".join(name or "as given" for name in by_setting))
    return [
        f"{column.heading}: judged by different options, and not compared: {' / '.join(settings)}; where a result file "
        "is removed, the same command judges that network as the others"
        for column, settings in columns.items()
        if len(settings) > 1
    ]


def _beside(results: Mapping[Child, Sequence[Result]]) -> list[str]:
    """What needs no training, for every column where it was judged as well."""
    known: dict[Column, dict[str, list[float]]] = {}
    for child, result in ((child, result) for child, several in results.items() for result in several):
        for name, value in list(_heads(result).items())[1:]:
            known.setdefault(_column(result, child), {}).setdefault(name, []).append(value)
    notes = list[str]()
    for column, by_name in known.items():
        ends = {name: [shown(column.metric, end(v)) for end in (min, max)] for name, v in by_name.items()}
        words = ", ".join(f"{name} {' to '.join(dict.fromkeys(pair))}" for name, pair in ends.items())
        notes.append(f"beside them, {column.heading}: {words}")
    return notes


def _chosen(plan: Plan, values: Values) -> list[str]:
    """The best setting of every column, what choosing it means, and what to type next."""
    if len(plan.settings) > 1 and not values:
        if plan.asked.judge is not None or plan.asked.command in LABELLED:
            return ["nothing that could be judged is left, so no setting is the best"]
        return ["nothing judges these runs yet; the same command with --judge knn does, without training again"]
    lines: list[str] = []
    for column, by_setting in values.items():
        sign = METRICS[column.metric].sign
        common = set[int].intersection(*(set(of) for of in by_setting.values()))  # else a seed would choose
        ranked = sorted(by_setting, key=lambda name: -sign * _mean(by_setting[name], common))
        if len(ranked) < 2:
            continue
        best, second = (by_setting[name] for name in ranked[:2])
        lines.append(
            f"best by {column.heading}: {ranked[0]}, {mean_of(column.metric, list(best.values())).cell.text}; "
            f"{_apart(column.metric, best, second)} {ranked[1]}"
        )
        if column.held_out:
            lines.append("  chosen on held-out labels; as the best of several it looks somewhat better than it is")
            lines += [f"  on the test images, once: {words}" for words in _on_test(plan, ranked[0])]
        else:
            lines.append(
                "  these are TEST IMAGES: choosing a setting by them is selection on the test split, after which its "
                "number is no estimate any more; choose by held-out labels instead"
            )
    return lines


def _mean(values: Mapping[int, float], seeds: Collection[int]) -> float:
    """Over some seeds, or all where there are none in common."""
    return float(np.mean([value for seed, value in values.items() if seed in seeds or not seeds]))


def _apart(metric: str, best: Mapping[int, float], second: Mapping[int, float]) -> str:
    """How far the first is from the second, paired by seed."""
    common = sorted(best.keys() & second.keys())
    if not common:
        return "no seed in common with"
    found = interval(np.array([[best[seed] - second[seed]] for seed in common]))
    size = signed_value(metric, found.estimate)
    if found.low is None or found.high is None:
        return f"{size}, without an interval, against"
    clear = "" if found.low > 0 or found.high < 0 else "no clear difference: "
    return f"{clear}{size} (95 % interval {span(metric, found.low, found.high, sign=True)}, paired by seed) against"


def _on_test(plan: Plan, setting: str) -> list[str]:
    """Commands that judge the chosen setting on the test images."""
    children = [child for child in plan.children if child.setting == setting]
    if plan.asked.command not in LABELLED:
        script = f"eval/{(plan.asked.judge or 'knn').replace('-', '_')}.py"
        return [f"{typed(script)} --backbone {shlex.quote(str(child.folder))}" for child in children]
    script = typed(f"recipes/{plan.asked.command}.py")
    return [f"{script} {shlex.join(_without(child.words[1:], ('--eval.held_out', '--run.dir')))}" for child in children]


def _without(words: Sequence[str], options: tuple[str, ...]) -> list[str]:
    """Words of a command less some options, whose values stand behind ``=`` or as the next word."""
    kept, after = list[str](), False
    for word in words:
        name, _, value = word.partition("=")
        if name in options:
            after = not value
        elif not after or word.startswith("--"):
            kept.append(word)
            after = False
        else:
            after = False
    return kept
