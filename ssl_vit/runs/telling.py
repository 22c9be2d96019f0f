"""What is said of runs: a table of many, the facts of one, what differs between two; as text, and as plain data."""

from __future__ import annotations

import shlex
import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ssl_vit.configs import flat
from ssl_vit.configs.facts import options
from ssl_vit.configs.metrics import METRICS, shown
from ssl_vit.configs.protocols import by_method
from ssl_vit.core.errors import UserError
from ssl_vit.core.started import typed
from ssl_vit.core.text import aligned, duration
from ssl_vit.methods import LABELLED, METHODS
from ssl_vit.runs.identity import differences
from ssl_vit.runs.listing import Run, Unread, last_line
from ssl_vit.runs.results import Result, protocol_words, read_results

_WIDEST = 72
"""Letters of a state in a table: why a run crashed may be long, and stands whole where one is shown."""
_LEFT_OUT = {"run.dir", "run.log_with"}
"""Options whose values say nothing of a run."""


def table(found: Sequence[Run | Unread]) -> str:
    """One line for each run, the newest first, then one for each folder that is none.

    Args:
        found: In any order.
    """
    runs = newest_first(found)
    rows = [
        (
            str(run.path),
            run.method,
            Path(run.data).name if Path(run.data).is_absolute() else run.data,
            run.network,
            run.told if len(run.told) <= _WIDEST else f"{run.told[: _WIDEST - 3]}...",
            "-" if run.knn is None else str(run.knn),
            _when(run),
        )
        for run in runs
    ]
    lines = [aligned([("run", "method", "data", "network", "state", "k-NN", "changed"), *rows])] if rows else []
    return "\n".join([*lines, *(f"left out: {one.path} {one.why}" for one in found if isinstance(one, Unread))])


def newest_first(found: Sequence[Run | Unread]) -> list[Run]:
    """The runs among what was found.

    Args:
        found: In any order.
    """
    return sorted((one for one in found if isinstance(one, Run)), key=lambda run: (-run.changed, str(run.path)))


def _when(run: Run) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(run.changed))


def listed(found: Sequence[Run | Unread]) -> dict[str, Any]:
    """The same as plain data.

    Args:
        found: In any order.
    """
    return {
        "runs": [summary(run) for run in newest_first(found)],
        "left_out": [{"path": str(one.path), "why": one.why} for one in found if isinstance(one, Unread)],
    }


def summary(run: Run) -> dict[str, Any]:
    """What the table says of a run, as plain data.

    Args:
        run: Which.
    """
    return {
        "path": str(run.path), "method": run.method, "data": run.data, "network": run.network, "state": run.state,
        "told": run.told, "step": run.step, "saved": run.saved, "steps": run.steps,
        "knn": None if run.knn is None else run.knn._asdict(),
        "changed": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(run.changed)),
    }  # fmt: skip


class Numbers(NamedTuple):
    """The results in a run directory."""

    results: list[Result]
    damaged: list[str]
    """Why the others cannot be read."""


def numbers(run: Run) -> Numbers:
    """Every result file of a run.

    Args:
        run: Which.
    """
    found, damaged = list[Result](), list[str]()
    for file in sorted(run.path.glob("results/*.json")):
        try:
            found += read_results([file])
        except UserError as error:
            damaged.append(str(error))
    return Numbers(found, damaged)


def one(run: Run) -> str:
    """Facts, products, numbers with their protocol, and what to type next.

    Args:
        run: Which.
    """
    versions, hardware = run.about.get("versions", {}), run.about.get("hardware", {})
    made_at = run.about.get("commit")
    commit = f", commit {str(made_at)[:12]}" if made_at else ""
    last, speed = last_line(run.path / "metrics.jsonl"), last_line(run.path / "timing.jsonl")
    trained = [f"loss {last['loss']:.4g}"] if isinstance(last.get("loss"), float) else []
    trained += [f"{speed['images_per_second']:,.0f} images/s"] if speed.get("images_per_second") else []
    started: dict[str, Any] = run.about.get("started_from") or {}
    facts = [
        ("run", str(run.path)),
        ("state", run.told),
        ("trains", f"{run.method}: {run.network}; images {run.data} ({run.about.get('data_fingerprint', '-')})"),
        ("went on from", str(started.get("weights", ""))),
        ("last line", ", ".join(trained)),
        ("command", str(run.about.get("command", "-"))),
        ("made with", f"ssl_vit {versions.get('ssl_vit', '-')}{commit}, torch {versions.get('torch', '-')}, "
                      f"{hardware.get('processes', 1)} process(es) on {hardware.get('device', '-')}, "
                      f"{hardware.get('cpu', '-')}"),
        ("changed", f"{_when(run)} ({duration(max(0.0, time.time() - run.changed))} ago)"),
    ]  # fmt: skip
    found = numbers(run)
    lines = [aligned([fact for fact in facts if fact[1]])]
    lines += _part("products", [aligned(products)] if (products := _products(run.path)) else [])
    lines += _part("numbers", [*map(_told, found.results), *(f"unread: {why}" for why in found.damaged)])
    return "\n".join([*lines, *_part("next", next_commands(run, found))])


def _part(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"{title}:", *(f"  {row}" for line in lines for row in line.splitlines())] if lines else []


def _products(path: Path) -> list[tuple[str, ...]]:
    names = {
        "backbone": "the network", "classifier": "the network with its head", "checkpoints": "", "figures": "",
        "features": "vectors that evaluation keeps", "tensorboard": "", "profile": "", "finetune": "runs",
        "transfer": "runs of a suite",
    }  # fmt: skip
    rows = list[tuple[str, ...]]()
    for name in [*names, *sorted(p.name for p in path.glob("export-*"))]:
        files = sorted(p for p in (path / name).glob("*") if p.suffix != ".sha256") if (path / name).is_dir() else []
        if files:
            size = sum(p.stat().st_size for p in files if p.is_file()) / 1e6
            shown_files = ", ".join(p.name for p in files[:4]) + (
                f" and {len(files) - 4} more" if len(files) > 4 else ""
            )
            rows.append((f"{name}/", f"{size:,.1f} MB", names.get(name) or shown_files))
    return rows


def _told(result: Result) -> str:
    """A result file in two lines: numbers, and what they mean."""
    metric = str(result.protocol["metric"])
    heads = [row for row in result.rows if row.get("headline", True) and row.get(metric) is not None]
    values = ", ".join(f"{row['method']} {shown(metric, row[metric])}" for row in heads) or "no value"
    draw = "" if result.draw is None else f", draw {result.draw}"
    test, asked = result.protocol["test"], f"{result.labels_used:,} labels{draw}, seed {result.seed}"
    meaning = (
        f"on {test.get('images', '?'):,} images: {test.get('split', '-')}; protocol {result.protocol_hash}: "
        f"{protocol_words(result)}; {Path('results', result.path.name)}"
    )
    return "\n".join(
        [
            f"{result.method}, {METRICS[metric].heading}: {values} ({asked})",
            *textwrap.wrap(meaning, 113, initial_indent="    ", subsequent_indent="    "),
        ]
    )


def one_as_data(run: Run) -> dict[str, Any]:
    """The same as plain data.

    Args:
        run: Which.
    """
    found = numbers(run)
    results = [
        {"file": str(r.path), "evaluation": r.method, "metric": r.protocol["metric"], "labels": r.labels_used,
         "draw": r.draw, "seed": r.seed, "rows": r.rows, "test": r.protocol["test"], "protocol_hash": r.protocol_hash}
        for r in found.results
    ]  # fmt: skip
    known = ("command", "commit", "versions", "hardware", "data_fingerprint")
    return summary(run) | {key: run.about.get(key) for key in known} | {
        "options": run.config, "results": results, "unread": found.damaged, "next": next_commands(run, found),
    }  # fmt: skip


def next_commands(run: Run, found: Numbers) -> list[str]:
    """What a person may type next.

    Args:
        run: Which.
        found: Its results.
    """
    place = shlex.quote(str(run.path))
    if run.state != "done":
        again = f"{run.about.get('command', '-')}   (goes on with this run)"
        return [] if run.state == "running" else [again]
    if run.method == "verdict":
        return [f"{typed('eval/report.py')} {place}"]
    judged = {protocol.name for result in found.results if (protocol := by_method(result.method))}
    scripts = [f"eval/{name}.py" for name, known in (("knn", "knn"), ("linear_probe", "cached")) if known not in judged]
    lines = [f"{typed(script)} --backbone {place}" for script in [*scripts, "eval/finetune.py"]]
    if (run.path / "classifier").is_dir():
        lines = [f"{typed('eval/predict.py')} --classifier {place} --data.path IMAGES"]
    return [*lines, f"{typed('eval/compare.py')} {place} OTHER_RUN"] if found.results else lines


def typed_options(command: str) -> dict[str, str]:
    """The options that a command names, with the values as they were typed.

    Args:
        command: On record in environment.json.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return {}
    found: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found[name] = value if equals else "" if following.startswith("--") else following
    return found


class Difference(NamedTuple):
    """A fact in which two runs differ."""

    name: str
    values: tuple[str, str]
    note: str = ""


def between(first: Run, second: Run) -> dict[str, list[Difference]]:
    """What differs between two runs: options (as filled in, and as typed), facts, versions, and numbers.

    Args:
        first: One.
        second: The other.
    """
    pair = (first, second)
    given = [typed_options(str(run.about.get("command", ""))) for run in pair]
    facts = [
        {"method": run.method, "images": run.about.get("data_fingerprint"), "commit": run.about.get("commit"),
         "state": run.told} | {f"hardware.{k}": v for k, v in run.about.get("hardware", {}).items()}
        for run in pair
    ]  # fmt: skip
    versions = [run.about.get("versions", {}) for run in pair]
    filled = [{k: v for k, v in flat(run.config).items() if k not in _LEFT_OUT} for run in pair]
    idle = {name for run in pair for name, option in _declared(run.method).items() if not option.effect.run}
    changed = [
        one._replace(values=tuple(
            f"{value} (typed)" if one.name in words else value for value, words in zip(one.values, given, strict=True)
        ), note="a run may go on with another value" if one.name in idle else "")
        for one in _differing(*filled)
    ]  # fmt: skip
    only_typed = [{k: v for k, v in words.items() if k not in _LEFT_OUT | filled[0].keys() | filled[1].keys()}
                  for words in given]  # fmt: skip
    return {
        "options": [*changed, *_differing(*only_typed)], "facts": _differing(*facts),
        "versions": _differing(*versions), "numbers": _values(*map(numbers, pair)),
    }  # fmt: skip


def _declared(method: str) -> Any:
    recipes: dict[str, Any] = {**LABELLED} | {name: entry.recipe for name, entry in METHODS.items()}
    return options(recipes[method]) if method in recipes else {}


def _differing(old: dict[str, Any], new: dict[str, Any]) -> list[Difference]:
    words = [{name: "-" if value is None else str(value) for name, value in given.items()} for given in (old, new)]
    names = dict.fromkeys([*old, *new])
    pairs = {name: (words[0].get(name, "-"), words[1].get(name, "-")) for name in names}
    return [Difference(name, pair) for name, pair in pairs.items() if pair[0] != pair[1]]


def _asked(result: Result) -> tuple[Any, ...]:
    """What a result is known by, as long as a run has one such."""
    return result.method, result.labels_used, result.draw, str(result.protocol["test"].get("split"))


def _values(old: Numbers, new: Numbers) -> list[Difference]:
    """Leading values that differ, or that one run alone has; a difference only where both mean the same."""
    found: list[dict[tuple[Any, ...], tuple[str, float, Result]]] = [{}, {}]
    alike = Counter(
        (number, *_asked(result)) for number, given in enumerate((old, new)) for result in given.results
    )  # of one run
    several = {key[1:] for key, count in alike.items() if count > 1}
    for known, given in zip(found, (old, new), strict=True):
        for result in given.results:
            metric = str(result.protocol["metric"])
            heads = [row for row in result.rows if row.get("headline", True) and row.get(metric) is not None]
            for row in heads:
                who = "" if row is heads[0] else f" of {row['method']}"
                draw = "" if result.draw is None else f", draw {result.draw}"
                split = str(result.protocol["test"].get("split"))
                if _asked(result) in several:
                    split += f" ({str(result.protocol['test'].get('fingerprint'))[:8]}, seed {result.seed})"
                key = (f"{result.method}{who}", f"{result.labels_used:,} labels{draw}, on {split}")
                known[key] = metric, float(row[metric]), result
    rows = list[Difference]()
    for key in dict.fromkeys([*found[0], *found[1]]):
        one, other = (known.get(key) for known in found)
        values = tuple("-" if v is None else shown(v[0], v[1]) for v in (one, other))
        note = ""
        if one is not None and other is not None:
            if told := differences(one[2].protocol, other[2].protocol):
                note = f"not comparable: {told}"
            elif one[1] == other[1]:
                continue
            else:
                note = f"{other[1] - one[1]:+.4g}, one number each, no interval"
        metric = (one or other or ("",))[0]
        rows.append(Difference(f"{key[0]}, {METRICS[metric].heading}, {key[1]}", (values[0], values[1]), note))
    return rows


def two_as_data(first: Run, second: Run) -> dict[str, Any]:
    """The same as plain data.

    Args:
        first: One.
        second: The other.
    """
    found = {title: [one._asdict() for one in rows] for title, rows in between(first, second).items()}
    return {"runs": [str(first.path), str(second.path)], **found}


def two(first: Run, second: Run) -> str:
    """What differs between two runs.

    Args:
        first: One.
        second: The other.
    """
    lines = [f"A  {first.path}", f"B  {second.path}"]
    for title, found in between(first, second).items():
        rows = [(one.name, *one.values, one.note) for one in found]
        lines += _part(title, [aligned([("", "A", "B", ""), *rows])]) if rows else ["", f"{title}: the same"]
    return "\n".join(lines)
