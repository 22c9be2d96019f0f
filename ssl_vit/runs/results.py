"""Result files: reading them, and tables that refuse to mix what cannot be compared.

Needs no torch, so results can be compared anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple, cast

from ssl_vit.configs import flat
from ssl_vit.configs.metrics import METRICS, shown
from ssl_vit.configs.protocols import by_method
from ssl_vit.core.errors import UserError, reason
from ssl_vit.core.reading import loads
from ssl_vit.runs.identity import differences, digest
from ssl_vit.runs.networks import runs_near

ENDINGS = (".csv", ".md", ".tex")
"""What a file of a table may end in; they say its form."""


@dataclass(frozen=True)
class Result:
    """One result file."""

    path: Path
    method: str
    """The evaluation: ``method`` of a protocol (``configs.protocols``)."""
    rows: list[dict[str, Any]]
    protocol: dict[str, Any]
    """All that gives the numbers their meaning."""
    protocol_hash: str
    labels_used: int
    draw: int | None
    """Which draw of that many labels; None for all there are."""
    seed: int
    data: dict[str, Any]
    backbone: dict[str, Any] | None = None
    """What was judged; None where training began from random weights."""
    made_with: dict[str, Any] = field(default_factory=dict)
    """Command, commit, versions and hardware."""
    seen: int | None = None
    """How many test images the backbone was pre-trained on; None where nothing was, or that is not known."""


_FIELDS: dict[str, tuple[type, ...]] = {
    "method": (str,), "rows": (list,), "protocol": (dict,), "protocol_hash": (str,), "labels_used": (int,),
    "draw": (int, type(None)), "seed": (int,), "data": (dict,),
}  # fmt: skip
_MEANING = ("kind", "metric", "test")
"""Fields of a protocol that everything in one table must share."""


def read_results(paths: Iterable[str | Path]) -> list[Result]:
    """Reads result files, or all in run directories and in their fine-tunings.

    Raises:
        UserError: For what does not exist, holds no results, is damaged or is something else.
    """
    files: dict[Path, Path] = {}
    for given in paths:
        place = Path(given).expanduser()
        if not place.exists():
            raise UserError(
                f"there is no file or folder {given}; give result files or run directories{runs_near(place)}"
            )
        found = result_files(place) if place.is_dir() else [place]
        if not found and not any((place / name).exists() for name in ("environment.json", "backbone")):
            raise UserError(
                f"{given} is no run, and holds no results/*.json; give result files or run directories"
                f"{runs_near(place)}"
            )
        if not found:
            raise UserError(f"{given} holds no results/*.json; judge it first: eval/knn.py --backbone {given}")
        files |= {file.resolve(): file for file in found}
    return [_read(file) for file in files.values()]


def result_files(run: Path) -> list[Path]:
    """The result files in a run's directory and in its fine-tunings."""
    return sorted([*run.glob("results/*.json"), *run.glob("finetune/*/results/*.json")])


def _read(path: Path) -> Result:
    try:
        content = loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read as JSON ({reason(error)}); repeat the evaluation that wrote it"
        ) from error
    if not isinstance(content, dict) or not {"method", "rows", "protocol"} <= set(content):
        raise UserError(f"{path} is no result file of an evaluation; give RUN/results/NAME.json")
    values = cast("dict[str, Any]", content)
    wrong = [name for name, kinds in _FIELDS.items() if name not in values or not isinstance(values[name], kinds)]
    if not wrong and not all(isinstance(row, dict) for row in values["rows"]):
        wrong = ["rows"]
    wrong += [f"protocol.{name}" for name in _MEANING if not wrong and name not in values["protocol"]]
    if wrong:
        raise UserError(
            f"{path} lacks {', '.join(wrong)}: an older version wrote it, or it is damaged; repeat the evaluation"
        )
    if digest(values["protocol"]) != values["protocol_hash"]:
        raise UserError(f"{path} was edited: its protocol does not have its protocol_hash; repeat the evaluation")
    if values["protocol"]["metric"] not in METRICS or any("mae" in row for row in values["rows"]):
        raise UserError(
            f"{path} has metrics that are none of {', '.join(METRICS)}: another version wrote it (mae is "
            "mean_absolute_error now); repeat the evaluation"
        )
    return Result(
        path, **{name: values[name] for name in _FIELDS}, backbone=values.get("backbone"),
        made_with=values.get("made_with") or {}, seen=values.get("test_images_seen_in_pre_training"),
    )  # fmt: skip


def held_out_of(labels: int) -> str:
    """What a protocol calls its test images where they are a fifth of so many labels (``--eval.held_out``)."""
    return f"a fifth of the {labels:,} given labels"


def is_held_out(result: Result) -> bool:
    """Whether a number is about held-out labels, so that choosing by it uses no test image."""
    return str(result.protocol["test"].get("split")).endswith(held_out_of(0).rpartition("0 ")[2])


class Number(NamedTuple):
    """One value of the leading metric, and what it belongs to."""

    evaluation: str
    method: str
    variant: str
    """How the backbone was made, but for the seed; empty for what no backbone takes part in."""
    labels: int
    sample: tuple[Any, ...]
    """What it is one of several of: draw of labels, seed, weights."""
    value: float
    row: dict[str, Any]
    """All metrics."""
    result: Result


class Comparison(NamedTuple):
    """A table, and what it says about itself."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    metric: str
    cells: tuple[tuple[tuple[Number, ...], ...], ...]
    """What the numbers of every row are means of, by the number of labels."""

    def markdown(self) -> str:
        """The table as a Markdown document."""
        lines = [f"# {self.title}", "", _line(self.headings), _line(("---", "---", *["---:"] * len(self.headings[2:])))]
        lines += [_line(row) for row in self.rows]
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes), ""])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def compare(results: Sequence[Result]) -> Comparison:
    """A table of methods over the number of labels: mean and standard deviation over draws and seeds.

    Raises:
        UserError: When results differ in test images, metric or kind of labels, when results of one evaluation follow
            different protocols, or when two files give different values for the same thing.
    """
    evaluations = check_alike(results)
    numbers = numbers_of(results)
    budgets = sorted({number.labels for number in numbers})
    metric, test = str(results[0].protocol["metric"]), results[0].protocol["test"]
    cells: dict[tuple[str, str], dict[int, dict[tuple[Any, ...], Number]]] = {}
    for number in numbers:
        line = f"{number.method} ({number.variant})" if number.variant else number.method
        cell = cells.setdefault((number.evaluation, line), {}).setdefault(number.labels, {})
        other = cell.setdefault(number.sample, number)
        if other.value != number.value:
            raise UserError(
                f"{other.result.path} and {number.result.path} give different values for {line}, {number.labels} "
                "labels, same draw and seed; give one of them"
            )
    filled = {name: tuple(tuple(row.get(b, {}).values()) for b in budgets) for name, row in cells.items()}
    rows = [
        (line, evaluation, *(_cell(metric, [number.value for number in numbers]) for numbers in row))
        for (evaluation, line), row in filled.items()
    ]
    names = " and ".join(dict.fromkeys(Path(str(r.data.get("name"))).name for r in results))
    title = f"{names}: {METRICS[metric].heading} over the number of labels"
    notes = (
        *_unlike(evaluations),
        "mean ± standard deviation over draws of labels and seeds (how many)",
        f"test: {', '.join(f'{key} {value}' for key, value in flat(test).items())}",
        *(_protocol_note(name, group[0]) for name, group in evaluations.items()),
    )
    headings = ("method", "evaluation", *(f"{b:,} labels" for b in budgets))
    return Comparison(title, headings, tuple(rows), notes, metric, tuple(filled.values()))


def check_alike(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Results by evaluation, where they may stand in one table.

    Raises:
        UserError: When there are none, when they differ in test images, metric or kind of labels, or when results of
            one evaluation follow different protocols.
    """
    if not results:
        raise UserError("nothing to compare: give result files or run directories")
    for before, after in pairwise(results):
        meaning = ({k: r.protocol[k] for k in _MEANING} for r in (before, after))
        _refuse(before, after, "were not judged alike", *meaning)
    evaluations = {name: [r for r in results if r.method == name] for name in dict.fromkeys(r.method for r in results)}
    for name, group in evaluations.items():
        for before, after in pairwise(group):
            _refuse(before, after, f"follow different protocols of {name}", before.protocol, after.protocol)
    # Unreadable images may have left a gap in some of the test sets.
    judged = {row.get("images"): result.path for result in results for row in result.rows}
    if len(judged) > 1:
        words = ", ".join(f"{count} in {path}" for count, path in judged.items())
        raise UserError(f"not all results are over the same number of readable test images: {words}")
    return evaluations


def _refuse(before: Result, after: Result, what: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    if changed := differences(old, new):
        raise UserError(
            f"{before.path} and {after.path} {what} ({changed}); compare them in separate tables, naming result "
            "files instead of run directories"
        )


def numbers_of(results: Sequence[Result]) -> list[Number]:
    """All values of the leading metric; where one method has several variants, with the words that tell them apart.

    A baseline that all backbones have in common stays one.
    """
    groups: dict[tuple[str, str], list[Number]] = {}
    for number in (number for result in results for number in _numbers(result)):
        groups.setdefault((number.evaluation, number.method), []).append(number)
    found: list[Number] = []
    for group in groups.values():
        made = {n.variant: cast("dict[str, Any]", loads(n.variant)) for n in group}
        values: dict[tuple[Any, ...], float] = {}
        agree = all(values.setdefault((n.labels, *n.sample), n.value) == n.value for n in group)
        baseline = all(n.sample[-1] is None for n in group)
        words = _words(made) if len(made) > 1 and not (baseline and agree) else dict.fromkeys(made, "")
        found += [n._replace(variant=words[n.variant]) for n in group]
    return found


def _numbers(result: Result) -> list[Number]:
    """The leading values of a file: its first row is about the backbone, those behind it are baselines."""
    metric, backbone, protocol = result.protocol["metric"], result.backbone or {}, by_method(result.method)
    made = {k: v for k, v in flat(backbone.get("options") or {}).items() if k != "seed"}
    variant = json.dumps(made or {"backbone": backbone.get("folder")}, sort_keys=True) if backbone else "{}"
    found: list[Number] = []
    for row in result.rows:
        if row.get(metric) is not None and row.get("headline") is not False:
            method, value = row["method"], float(row[metric])
            fixed = protocol is not None and not protocol.seeded and method != "random weights"
            weights = backbone.get("weights") if method == result.rows[0]["method"] else None
            sample = (result.draw, None if fixed else result.seed, weights)
            found.append(Number(result.method, method, variant, result.labels_used, sample, value, row, result))
    return found


def _words(made: dict[str, dict[str, Any]]) -> dict[str, str]:
    """The options in which several variants differ, at most four."""
    keys = sorted({key for options in made.values() for key in options})
    differing = [key for key in keys if len({json.dumps(options.get(key)) for options in made.values()}) > 1]
    words = {}
    for variant, options in made.items():
        own = [f"{key} {options[key]}" for key in differing if key in options]
        words[variant] = ", ".join([*own[:4], "..."] if len(own) > 4 else own)
    return words


def _cell(metric: str, values: list[float]) -> str:
    spread = f" ± {shown(metric, stdev(values))}" if len(values) > 1 else ""
    return f"{shown(metric, mean(values))}{spread} ({len(values)})" if values else "-"


def _protocol_note(name: str, result: Result) -> str:
    return (
        f"{name}, protocol {result.protocol_hash} (what is not named was left to its default): {protocol_words(result)}"
    )


def protocol_words(result: Result) -> str:
    """What gives a result's numbers their meaning, beside metric and test images.

    Args:
        result: Which.
    """
    own = {
        key: value for key, value in flat(result.protocol).items()
        if key.partition(".")[0] not in _MEANING and value is not None
    }  # fmt: skip
    return ", ".join(f"{key} {value}" for key, value in own.items())


def training_rules(result: Result) -> dict[str, Any]:
    """What fine-tuning and training from scratch must have in common to be a fair pair."""
    return {key: result.protocol.get(key) for key in ("view", "supervised", "augment", "fit")}


def _unlike(evaluations: dict[str, list[Result]]) -> tuple[str, ...]:
    """Says where the labelled baseline and fine-tuning differ in more than the pre-training and its own tuning."""
    if not {"finetune", "supervised"} <= set(evaluations):
        return ()
    tuned, scratch = (training_rules(evaluations[name][0]) for name in ("finetune", "supervised"))
    changed = differences(tuned, scratch)
    return (f"NOT A FAIR PAIR: fine-tuning and the labelled baseline differ in {changed}",) if changed else ()
