"""The figure of k-NN over the time of pre-training."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from ssl_vit.core.files import write_bytes_atomically
from ssl_vit.methods import METHODS
from ssl_vit.methods.method import Look
from ssl_vit.report.charts.canvas import styled
from ssl_vit.report.charts.placing import End, name_ends, settle
from ssl_vit.report.look import MUTED, looks

_STYLES = {"mean": "-", "cls": (0, (4, 2))}
_SCRATCH = Look(MUTED, MUTED, "X")


def knn_over_time(curve: list[dict[str, Any]], metric: str, scratch: float, path: Path) -> None:
    """One line per method and pooling over minutes of training; epochs at the lines' ends.

    Args:
        curve: Rows of ``contest.knn_curve`` of all methods.
        metric: Key of the value, in %.
        scratch: What training on the same number of labels from scratch reaches, in %.
        path: Of the PNG.
    """
    longest, look = max(row["minutes"] for row in curve), looks(METHODS)
    ends, file = [End("from scratch, same labels", longest, scratch, _SCRATCH)], io.BytesIO()
    with styled():
        figure = Figure(figsize=(7.2, 4.0), layout="constrained")
        axis = figure.subplots()
        for name, method in METHODS.items():
            for pool, style in _STYLES.items():
                own = sorted(
                    (row["minutes"], row[metric], row["epoch"])
                    for row in curve
                    if (row["curve"], row["pool"]) == (method.title, pool)
                )
                if own:
                    minutes, values, epochs = zip(*own, strict=True)
                    axis.plot(minutes, values, color=look[name].light, linestyle=style)
                    words = f"{method.title}, {pool}, {epochs[-1]:.0f} epochs"
                    ends.append(End(words, minutes[-1], values[-1], look[name]))
        axis.axhline(scratch, color=MUTED, linewidth=1.0, linestyle=(0, (1, 2)))
        axis.set(xlim=(0, longest), xlabel="minutes of pre-training on one thread")
        axis.set_ylabel("top-1 %" if metric == "top1" else "balanced accuracy %")
        axis.grid(axis="y")
        labels = curve[0]["labels"]
        title = axis.set_title(f"k-NN in the features of {labels:,} labelled images; at 0 the weights are random")
        settle(figure, {axis: title}, 1, [name_ends(axis, ends)])
        figure.savefig(file, dpi=160, facecolor="white")
    write_bytes_atomically(path, file.getvalue())
