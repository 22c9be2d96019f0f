"""Two named checkpoints on the same test images. Methods are compared in a verdict, over seeds and draws of labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ssl_vit.core.errors import UserError
from ssl_vit.report.cells import p_value
from ssl_vit.report.findings.records import answers_beside
from ssl_vit.runs.results import Result
from ssl_vit.statistics.paired import mcnemar


def between_two(results: Sequence[Result]) -> str:
    """McNemar's exact test between two results with one class per image, in words that say what it is about.

    Raises:
        UserError: For another number of results, other test images, or results without the answers to single images.
    """
    if len(results) != 2:
        raise UserError(f"--mcnemar is between two result files, and {len(results)} are given; name two")
    one, other = results
    if any(result.protocol["test"] != one.protocol["test"] for result in results):
        raise UserError(f"{one.path} and {other.path} were judged on other test images; judge both on the same ones")
    answers = [answers_beside(result.path) for result in results]
    for result, kept in zip(results, answers, strict=True):
        if result.protocol["metric"] != "top1":  # of balanced accuracy a wrong answer may count for something, too
            one_class = result.protocol.get("kind", "class") == "class"
            raise UserError(
                f"{result.path} leads with {result.protocol['metric']}; McNemar's test counts right and wrong answers: "
                + ("judge with --eval.metric top1" if one_class else "it needs one class per image")
            )
        if "units" not in kept:
            raise UserError(f"{result.path} has no answers beside it (NAME.npz); repeat the evaluation that wrote it")
    places = [kept.get("positions", np.arange(len(kept["units"]))) for kept in answers]
    if any(not np.array_equal(place, places[0]) for place in places):
        raise UserError(f"{one.path} and {other.path} could not read the same test images; judge both again")
    right = [kept["units"] > 0 for kept in answers]
    found = mcnemar(right[0], right[1])
    p = p_value(found.p)
    return (
        f"McNemar's exact test on {len(right[0]):,} test images: {one.path} alone is right on {found.only_first:,}, "
        f"{other.path} alone on {found.only_second:,}; p {p if p.startswith('<') else f'= {p}'}. {found.note}"
    )
