"""What stands behind the numbers, in tables: tuning, data, time, origin, commands."""

from __future__ import annotations

import json
import re
from collections import Counter

from ssl_vit.configs import flat
from ssl_vit.configs.metrics import shown
from ssl_vit.report.cells import (
    NOTHING,
    Cell,
    Table,
    count,
    heading,
    seconds,
    table,
)
from ssl_vit.report.findings.records import Verdict
from ssl_vit.report.findings.tables import method_cell, method_name

_OPTIONS = {
    "lr": "learning rate", "rate": "learning rate", "weight_decay": "weight decay", "decay": "weight decay",
    "layer_decay": "layer decay", "steps": "steps", "pool": "pooling",
}  # fmt: skip


def tuning_rows(verdict: Verdict, use: str) -> Table:
    """What was tried, and what was chosen.

    Args:
        verdict: All numbers.
        use: How labels were used.
    """
    studies = [study for study in verdict.studies if study["use"] == use]
    options = [key for key in _OPTIONS if any(key in trial for study in studies for trial in study["trials"])]
    rows: list[list[Cell | str]] = []
    for study in studies:
        for i, trial in enumerate(study["trials"]):
            chosen, score = i == study.get("chosen"), trial.get("score")
            rows.append(
                [
                    Cell(method_name(verdict, study["start"], use), start=study["start"]),
                    count(study.get("labels")),
                    *(_option(trial.get(key)) for key in options),
                    Cell("diverged" if score is None else f"{score:.4g}", strong=chosen),
                    Cell("chosen", strong=True) if chosen else "",
                ]
            )
    selection = "; ".join(dict.fromkeys(str(study["selection"]) for study in studies if study.get("selection")))
    note = f"Chosen: {selection}. Of scores, the larger one is better." if selection else ""
    return table(("method", "labels", *(_OPTIONS[key] for key in options), "score", ""), rows, 1, note)


def _option(value: object) -> str:
    if value is None:
        return NOTHING
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def data_rows(verdict: Verdict) -> Table:
    """What the images are."""
    data = verdict.told("data")
    channels, bits = data.get("channels"), data.get("bits")
    prints = data.get("fingerprints") or {}
    note = f" ({data['pool_note']})" if data.get("pool_note") else ""
    facts = {
        "images to pre-train on": count(data.get("pool")) + note,
        "labelled training images": count(data.get("train")),
        "test images": f"{count(data.get('test'))} ({data.get('split') or 'split not named'})",
        "classes" if verdict.about["kind"] == "class" else "labels": count(len(verdict.about["classes"])),
        "pixels": ", ".join(
            str(words) for words in (data.get("sizes"), _several(channels, "channel"), _several(bits, "bit")) if words
        ) or NOTHING,
        "unreadable": count(data.get("unreadable")),
        "groups": str(data.get("group") or "none named"),
        "fingerprints": ", ".join(f"{key} {value}" for key, value in prints.items() if value) or NOTHING,
    }  # fmt: skip
    return table(("", ""), [[key, value] for key, value in facts.items()], 2)


def _several(number: int | None, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}" if number else ""


def plan_rows(verdict: Verdict) -> Table:
    """What took how long."""
    rows: list[list[Cell | str]] = [
        [str(row["what"]), count(row["units"]), seconds(row["seconds"]), seconds(row["units"] * row["seconds"])]
        for row in verdict.told("plan").get("rows", [])
    ]
    return table(("part", "how many", "each, expected", "together"), rows, 1)


def typed(command: str) -> str:
    """A recorded command as one types it in a clone of the project, wherever that lies.

    Args:
        command: Beginning with a script, or with ``accelerate launch``.
    """
    command = re.sub(r"^((?:accelerate launch )?)/.*?/(?=(?:eval|recipes)/\w+\.py(?:\s|$))", r"\1", command)
    script = re.match(r"(?:eval|recipes)/\w+\.py(?:\s|$)", command)
    return f"accelerate launch {command}" if script else command


def sentence(note: str) -> str:
    """Words of the plan as a sentence of their own."""
    note = note.strip().rstrip(".")
    return f"{note[:1].upper()}{note[1:]}."


def provenance_rows(verdict: Verdict) -> Table:
    """What made the numbers: command, code, machine, weights."""
    about = verdict.told("provenance")
    rows: list[list[Cell | str]] = []
    if about.get("command"):
        rows.append(["command", Cell(typed(str(about["command"])), code=True)])
    rows += [["commit", Cell(str(about.get("commit") or "not known"), code=True)]]
    for part in ("versions", "hardware"):
        words = ", ".join(f"{key} {value}" for key, value in flat(about.get(part) or {}).items())
        if words:
            rows.append([part, words])
    parts = ("commit", "versions", "hardware")
    own = flat({part: about.get(part) for part in parts})
    makers = [
        flat({part: s.result.made_with.get(part) for part in parts}) for s in verdict.scores if s.result.made_with
    ]
    made = Counter(
        "; ".join(
            f"{key} {value} instead of {own[key]}" for key, value in other.items() if own.get(key, value) != value
        )
        for other in makers
    )
    otherwise = [
        f"{count(many)} of {count(len(verdict.scores))} numbers: {words}" for words, many in made.most_common() if words
    ]
    rows += [["made otherwise", Cell(words)] for words in otherwise]
    for start, method in verdict.methods.items():
        for run in method.get("pretraining", []):
            seed = "" if run.get("seed") is None else f"seed {run['seed']}"
            told: list[str] = [seed, f"weights {run.get('weights')}", str(run.get("checkpoint") or "")]
            backbone = Cell(f"{verdict.name(start)} backbone", start=start)
            rows.append([backbone, ", ".join(word for word in told if word)])
    return table(("", ""), rows, 2)


def config_text(verdict: Verdict) -> str:
    """The options of the verdict, a line each; empty where none are recorded."""
    options = flat(verdict.told("provenance").get("config") or {})
    return "\n".join(f"{key}: {json.dumps(value)}" for key, value in options.items())


def commands(verdict: Verdict) -> Table:
    """Every number with the command that makes it again."""
    metric = verdict.about["metric"]
    rows: list[list[Cell | str]] = []
    for start, method in verdict.methods.items():
        for run in method.get("pretraining", []):
            if run.get("command"):
                words = f"{verdict.name(start)}, the weights"
                rows.append(
                    [Cell(words, start=start), NOTHING, NOTHING, NOTHING, Cell(typed(str(run["command"])), code=True)]
                )
    for s in sorted(verdict.scores, key=lambda s: (verdict.starts.index(s.start), s.use, s.matched, s.labels, s.draw)):
        name, command = method_cell(verdict, s.start, s.use, matched=s.matched), Cell(typed(s.command), code=True)
        rows.append([name, count(s.labels), count(s.draw), shown(metric, s.value), command if s.command else NOTHING])
    found = table(("number", "labels", "draw", heading(metric), "command"), rows, 1)
    return Table(found.headings, found.rows, 1)
