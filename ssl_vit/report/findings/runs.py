"""Ordinary run directories as a verdict: what their results hold, and nothing that no run records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ssl_vit.configs.protocols import PROTOCOLS
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.methods.starts import start_of
from ssl_vit.report.findings.records import PER_CLASS, Score, Verdict, answers_beside
from ssl_vit.runs.identity import digest
from ssl_vit.runs.results import Number, Result, check_alike, numbers_of, read_results, training_rules


def read_runs(folders: Sequence[str | Path]) -> Verdict:
    """Reads the results of run directories, or result files.

    Raises:
        UserError: Where there are none, and where they may not stand in one table (``ssl_vit.runs.results``).
    """
    results = read_results(folders)
    uses = {protocol.method: protocol.use for protocol in PROTOCOLS.values()}
    judged = {result.method for result in results}
    first, *others = [name for name in uses if uses[name] == "linear" and name in judged] or [""]
    if others:
        say_once(f"note: results of {', '.join(others)} are left out; a report has one linear probe, {first}")
    results = [result for result in results if result.method not in others]
    evaluations = check_alike(results)
    strange = sorted(set(evaluations) - set(uses))
    if strange:
        raise UserError(f"a report knows {', '.join(uses)}, not {', '.join(strange)}; leave that result out")
    groups: dict[tuple[str, str, int], list[Number]] = {}
    for number in (numbers := numbers_of(results)):
        groups.setdefault((_start(number)[0], uses[number.evaluation], number.labels), []).append(number)
    scores = [score for key, group in groups.items() for score in _scores(*key, group)]
    head = results[0]
    test = head.protocol["test"]
    names = next((list(s.row[k]) for s in scores for k in PER_CLASS if s.row.get(k)), [])
    kept = (answers_beside(result.path).get("clusters") for result in results)
    clusters = next((found.tolist() for found in kept if found is not None), None)
    about: dict[str, Any] = {
        "title": Path(str(head.data.get("name", "runs"))).name,
        "kind": head.protocol["kind"], "metric": head.protocol["metric"], "classes": names,
        "labels": sorted({score.labels for score in scores}),
        "data": {
            "name": str(head.data.get("name")), "test": test.get("images"), "split": test.get("split"),
            "fingerprints": {"train": head.protocol.get("train"), "test": test.get("fingerprint")},
        },
        "test": {"labels": None, "clusters": clusters},
        "methods": _methods(numbers),
        "provenance": head.made_with,
        "from_runs": [str(folder) for folder in folders],
        "seen": [result.seen for result in results if result.backbone is not None],
    }  # fmt: skip
    return Verdict(Path(), about, tuple(scores))


def _answers(number: Number) -> dict[str, np.ndarray]:
    """Those of a result's own row; of the baselines behind it none are kept."""
    return answers_beside(number.result.path) if number.method == number.result.rows[0]["method"] else {}


def _start(number: Number) -> tuple[str, str]:
    """As verdicts call it (what they do not know by the words of the table), and its name."""
    method, variant = number.method.removesuffix(", fine-tuned"), f" ({number.variant})" if number.variant else ""
    return (start_of(method) or method) + variant, method + variant


def _scores(start: str, use: str, labels: int, group: Sequence[Number]) -> list[Score]:
    """Draws of labels keep their number; with all labels, of which there is no draw, values are numbered in order."""
    values = {number.sample: number for number in group}
    ordered = sorted(values.values(), key=lambda n: (n.result.draw or 0, n.result.seed, str(n.sample[-1])))
    weights = sorted({str(number.sample[-1]) for number in ordered if number.sample[-1]})
    chosen = _one_per_draw(ordered)
    if len(chosen) < len(ordered):
        say_once(
            f"note: of {len(ordered)} numbers of {start} ({use}, {labels:,} labels) the report takes one per draw of "
            "labels, of each backbone or seed in turn, as a verdict does"
        )
    return [
        Score(
            start=start, use=use, labels=labels, draw=draw,
            pretraining=weights.index(str(n.sample[-1])) if n.sample[-1] else None, matched=False, value=n.value,
            units=kept.get("units"), predicted=kept.get("predicted"), result=_judged(n.result, use),
            command=str(n.result.made_with.get("command", "")), cost={}, row=n.row,
        )
        for draw, n in chosen.items() for kept in (_answers(n),)
    ]  # fmt: skip


def _one_per_draw(ordered: Sequence[Number]) -> dict[int, Number]:
    """Every draw of labels with one backbone or seed, the next one each time.

    All of them on every draw would be no independent numbers, and what is compared is paired by draw.
    """
    groups: dict[int, list[Number]] = {}
    for i, number in enumerate(ordered):
        draw = number.result.draw
        groups.setdefault(i if draw is None else draw, []).append(number)
    return {draw: group[i % len(group)] for i, (draw, group) in enumerate(groups.items())}


def _judged(result: Result, use: str) -> Result:
    """With what must agree where weights are trained for a protocol: fine-tuning is another evaluation by name."""
    rules = training_rules(result)
    return replace(result, protocol=rules, protocol_hash=digest(rules)) if use == "train" else result


def _methods(numbers: Sequence[Number]) -> dict[str, dict[str, Any]]:
    methods: dict[str, dict[str, Any]] = {}
    for number in numbers:
        start, name = _start(number)
        method = methods.setdefault(start, {"name": name, "pretraining": []})
        weights, backbone = number.sample[-1], number.result.backbone or {}
        if weights and weights not in {run["weights"] for run in method["pretraining"]}:
            run = Path(str(backbone.get("folder"))).parent
            seed = (backbone.get("options") or {}).get("seed")
            method["pretraining"].append({"run": str(run), "seed": seed, "weights": weights})
    return methods
