"""What stands behind the numbers, in tables: tuning, data, time, origin, commands."""

from __future__ import annotations

import json
import re
from collections import Counter

from ssl_vit.configs import flat
from ssl_vit.configs.metrics import shown
from ssl_vit.report.cells import NOTHING, Cell, Row, Table, count, heading, seconds, table, upper
from ssl_vit.report.findings.records import Verdict
from ssl_vit.report.findings.tables import USES, method_cell, way_of
from ssl_vit.statistics.advice import Way

_OPTIONS = {
    "lr": "learning rate", "rate": "learning rate", "weight_decay": "weight decay", "decay": "weight decay",
    "layer_decay": "layer decay", "steps": "steps", "pool": "pooling",
}  # fmt: skip
_MAKERS = ("commit", "versions", "hardware")


def tuning_rows(verdict: Verdict, use: str) -> Table:
    """What was tried for one use of labels, and what was chosen."""
    studies = [study for study in verdict.studies if study["use"] == use]
    options = [key for key in _OPTIONS if any(key in trial for study in studies for trial in study["trials"])]
    rows: list[Row] = []
    for study in studies:
        for i, trial in enumerate(study["trials"]):
            chosen, score = i == study.get("chosen"), trial.get("score")
            rows.append([
                method_cell(verdict, Way(study["start"], use)),
                count(study.get("labels")),
                *(_option(trial.get(key)) for key in options),
                Cell(_score(score, use), strong=chosen),
                Cell("chosen", strong=True) if chosen else "",
            ])  # fmt: skip
    selection = "; ".join(dict.fromkeys(str(study["selection"]) for study in studies if study.get("selection")))
    note = f"Chosen: {selection}. Of scores, the larger one is better." if selection else ""
    return table(("method", "labels", *(_OPTIONS[key] for key in options), "score", ""), rows, 1, note, USES[use])


def _score(score: float | None, use: str) -> str:
    """Of a probe there is none where the labels were too few to choose by."""
    if score is None:
        return "diverged" if use == "train" else NOTHING
    return f"{score:.4g}"


def _option(value: object) -> str:
    if value is None:
        return NOTHING
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def data_rows(verdict: Verdict) -> Table:
    """What the images are."""
    data = verdict.told("data")
    form = [f"{n} {what}{'s' if n > 1 else ''}" for what in ("channel", "bit") if (n := data.get(f"{what}s"))]
    prints = (data.get("fingerprints") or {}).items()
    note = f" ({data['pool_note']})" if data.get("pool_note") else ""
    facts = {
        "images to pre-train on": count(data.get("pool")) + note,
        "labelled training images": count(data.get("train")),
        "test images": f"{count(data.get('test'))} ({data.get('split') or 'split not named'})",
        "classes" if verdict.about["kind"] == "class" else "labels": count(len(verdict.about["classes"])),
        "pixels": ", ".join([*([str(data["sizes"])] if data.get("sizes") else []), *form]) or NOTHING,
        "unreadable": count(data.get("unreadable")),
        "groups": str(data.get("group") or "none named"),
        "fingerprints": ", ".join(f"{key} {value}" for key, value in prints if value) or NOTHING,
    }
    return table(("", ""), facts.items(), 2)


def plan_rows(verdict: Verdict) -> Table:
    """What took how long."""
    rows = (
        [str(row["what"]), count(row["units"]), seconds(row["seconds"]), seconds(row["units"] * row["seconds"])]
        for row in verdict.told("plan").get("rows", [])
    )
    return table(("part", "how many", "each, expected", "together"), rows, 1)


def typed(command: str) -> str:
    """A recorded command, of a script or of ``accelerate launch``, as one types it in a clone of the project."""
    command = re.sub(r"^((?:accelerate launch )?)/.*?/(?=(?:eval|recipes)/\w+\.py(?:\s|$))", r"\1", command)
    script = re.match(r"(?:eval|recipes)/\w+\.py(?:\s|$)", command)
    return f"accelerate launch {command}" if script else command


def sentence(note: str) -> str:
    """Words of the plan as a sentence of their own."""
    return f"{upper(note.strip().rstrip('.'))}."


def provenance_rows(verdict: Verdict) -> Table:
    """What made the numbers: command, code, machine, weights."""
    about = verdict.told("provenance")
    rows: list[Row] = []
    if about.get("command"):
        rows.append(["command", Cell(typed(str(about["command"])), code=True)])
    rows.append(["commit", Cell(str(about.get("commit") or "not known"), code=True)])
    for part in ("versions", "hardware"):
        words = ", ".join(f"{key} {value}" for key, value in flat(about.get(part) or {}).items())
        rows += [[part, words]] if words else []
    own, made = flat({part: about.get(part) for part in _MAKERS}), Counter[str]()
    for told in (score.result.made_with for score in verdict.scores if score.result.made_with):
        other = flat({part: told.get(part) for part in _MAKERS}).items()
        made["; ".join(f"{k} {v} instead of {own[k]}" for k, v in other if own.get(k, v) != v)] += 1
    whole = count(len(verdict.scores))
    rows += [["made otherwise", f"{count(n)} of {whole} numbers: {words}"] for words, n in made.most_common() if words]
    for start in verdict.methods:
        for run in verdict.runs(start):
            seed = "" if run.get("seed") is None else f"seed {run['seed']}"
            told = [seed, f"weights {run.get('weights')}", str(run.get("checkpoint") or "")]
            backbone = Cell(f"{verdict.name(start)} backbone", start=start)
            rows.append([backbone, ", ".join(word for word in told if word)])
    return table(("", ""), rows, 2)


def config_text(verdict: Verdict) -> str:
    """The options of the verdict, a line each; empty where none are recorded."""
    options = flat(verdict.told("provenance").get("config") or {})
    return "\n".join(f"{key}: {json.dumps(value)}" for key, value in options.items())


def commands(verdict: Verdict) -> Table:
    """Every number with the command that makes it again."""
    metric, order = verdict.about["metric"], verdict.starts
    rows: list[Row] = [
        [Cell(f"{verdict.name(start)}, the weights", start=start), *[NOTHING] * 3,
         Cell(typed(str(run["command"])), code=True)]
        for start in verdict.methods for run in verdict.runs(start) if run.get("command")
    ]  # fmt: skip
    for s in sorted(verdict.scores, key=lambda s: (order.index(s.start), s.use, s.matched, s.labels, s.draw)):
        name = method_cell(verdict, way_of(s))
        command = Cell(typed(s.command), code=True) if s.command else NOTHING
        rows.append([name, count(s.labels), count(s.draw), shown(metric, s.value), command])
    return table(("number", "labels", "draw", heading(metric), "command"), rows, 1)
