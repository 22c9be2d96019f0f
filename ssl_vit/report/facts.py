"""What stands behind the numbers, in tables: tuning, data, time, origin, commands."""

from __future__ import annotations

import json

from ssl_vit.report.cells import NOTHING, Cell, Table, count, heading, seconds, table
from ssl_vit.report.records import Verdict
from ssl_vit.report.tables import method_name
from ssl_vit.results import shown
from ssl_vit.rundir import flat


def tuning_rows(verdict: Verdict) -> Table:
    """What was tried, and what was chosen."""
    rows: list[list[Cell | str]] = []
    for study in verdict.studies:
        for i, trial in enumerate(study["trials"]):
            chosen = i == study.get("chosen")
            options = [f"{trial[key]:g}" if key in trial else NOTHING for key in ("lr", "weight_decay", "layer_decay")]
            rows.append(
                [
                    Cell(method_name(verdict, study["start"], study["use"]), start=study["start"]),
                    count(study.get("labels")),
                    *options,
                    count(trial.get("steps")),
                    Cell(shown(verdict.about["metric"], float(trial["score"])), strong=chosen),
                    Cell("chosen", strong=True) if chosen else "",
                ]
            )
    heads = ("method", "labels", "learning rate", "weight decay", "layer decay", "steps", "score", "")
    selection = "; ".join(dict.fromkeys(str(study["selection"]) for study in verdict.studies if "selection" in study))
    return table(heads, rows, 1, selection)


def data_rows(verdict: Verdict) -> Table:
    """What the images are."""
    data = verdict.told("data")
    channels, bits = data.get("channels"), data.get("bits")
    prints = data.get("fingerprints") or {}
    facts = {
        "images to pre-train on": count(data.get("pool")),
        "labelled training images": count(data.get("train")),
        "test images": f"{count(data.get('test'))} ({data.get('split') or 'split not named'})",
        "classes" if verdict.about["kind"] == "class" else "labels": count(len(verdict.about["classes"])),
        "pixels": ", ".join(
            str(words) for words in (data.get("sizes"), channels and f"{channels} channel(s)", bits and f"{bits} bits")
            if words
        ) or NOTHING,
        "unreadable": count(data.get("unreadable")),
        "groups": str(data.get("group") or "none named"),
        "fingerprints": ", ".join(f"{key} {value}" for key, value in prints.items() if value) or NOTHING,
    }  # fmt: skip
    return table(("", ""), [[key, value] for key, value in facts.items()], 2)


def plan_rows(verdict: Verdict) -> Table:
    """What took how long."""
    rows: list[list[Cell | str]] = [
        [str(row["what"]), count(row.get("units")), seconds(row.get("seconds"))]
        for row in verdict.told("plan").get("rows", [])
    ]
    return table(("part", "how many", "expected time"), rows, 1)


def provenance_rows(verdict: Verdict) -> Table:
    """What made the numbers: command, code, machine, weights."""
    about = verdict.told("provenance")
    rows: list[list[Cell | str]] = []
    if about.get("command"):
        rows.append(["command", Cell(str(about["command"]), code=True)])
    rows += [["commit", Cell(str(about.get("commit") or "not known"), code=True)]]
    for part in ("versions", "hardware"):
        words = ", ".join(f"{key} {value}" for key, value in flat(about.get(part) or {}).items())
        rows += [[part, words]] if words else []
    for start, method in verdict.methods.items():
        for run in method.get("pretraining", []):
            told = [f"seed {run.get('seed')}", f"weights {run.get('weights')}", str(run.get("checkpoint") or "")]
            rows.append(
                [Cell(f"{verdict.name(start)} backbone", start=start), ", ".join(word for word in told if word)]
            )
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
                words = f"{verdict.name(start)}, pre-training {run.get('seed')}"
                rows.append([Cell(words, start=start), NOTHING, NOTHING, NOTHING, Cell(str(run["command"]), code=True)])
    for s in sorted(verdict.scores, key=lambda s: (verdict.starts.index(s.start), s.use, s.matched, s.labels, s.draw)):
        name = method_name(verdict, s.start, s.use, matched=s.matched)
        rows.append([Cell(name, start=s.start), count(s.labels), count(s.draw), shown(metric, s.value),
                     Cell(s.command or NOTHING, code=True)])  # fmt: skip
    found = table(("number", "labels", "draw", heading(metric), "command"), rows, 1)
    return Table(found.headings, found.rows, 1)
