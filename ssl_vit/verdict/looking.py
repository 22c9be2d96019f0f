"""A look at the numbers that there are, after a draw: which ways are worth another one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ssl_vit.core.dist import gather_lists, rank_and_world
from ssl_vit.report.findings.recommendation import asked_of
from ssl_vit.report.findings.records import Verdict, read_scores
from ssl_vit.statistics.advice import Way
from ssl_vit.statistics.looks import worth_a_draw
from ssl_vit.verdict.study import Study


def worth_more(
    study: Study, made: int, most: int, flops: Mapping[str, float], test: Mapping[str, Any]
) -> dict[int, frozenset[Way]]:
    """Ways of which another draw could change what is advised, by number of labels; every process must call.

    Only what was trained on the first draws counts, so an interrupted verdict that goes on decides as it did.

    Args:
        study: What is compared.
        made: Draws of training that are whole.
        most: Draws after which no more are made.
        flops: Of one pre-training run, by start.
        test: What verdict.json will tell of the test images: ``labels`` and ``clusters``.
    """
    told = ""
    if rank_and_world()[0] == 0:
        scores = read_scores(study.folder, study.metric)
        kept = tuple(s for s in scores if s.use != "train" or s.draw < made)
        methods = {start: {"pretraining": [{"flops": value}]} for start, value in flops.items()}
        about = {"kind": study.kind, "metric": study.metric, "labels": list(study.labels), "test": dict(test),
                 "methods": methods}  # fmt: skip
        asked = asked_of(Verdict(study.folder, about, kept))
        found = worth_a_draw(
            asked.table, most, asked.groups, guess=asked.guess,
            indifferent=asked.indifferent, span=asked.span,
        )  # fmt: skip
        told = json.dumps([[labels, sorted(ways)] for labels, ways in found.items()])
    agreed: Sequence[Any] = json.loads(gather_lists([told])[0])
    return {int(labels): frozenset(Way(*way) for way in ways) for labels, ways in agreed}
