"""The figure of k-NN over the time of pre-training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ssl_vit.figures.panels import LINE, MUTED, plt

_COLOURS = {"MAE": "#0b6e99", "DINO": "#c2410c"}
_STYLES = {"mean": "-", "cls": (0, (4, 2))}


def knn_over_time(curve: list[dict[str, Any]], metric: str, scratch: float, path: Path) -> None:
    """One line per method and pooling over minutes of training; epochs at the lines' ends.

    Args:
        curve: Rows of ``contest.knn_curve`` of all methods.
        metric: Key of the value, in %.
        scratch: What training on the same number of labels from scratch reaches, in %.
        path: Of the PNG.
    """
    figure, axis = plt.subplots(figsize=(7.2, 4.0), dpi=160)
    longest = max(row["minutes"] for row in curve)
    for method, colour in _COLOURS.items():
        for pool, style in _STYLES.items():
            own = sorted(
                (r["minutes"], r[metric], r["epoch"]) for r in curve if (r["curve"], r["pool"]) == (method, pool)
            )
            if not own:
                continue
            minutes, values, epochs = zip(*own, strict=True)
            axis.plot(minutes, values, color=colour, linestyle=style, linewidth=1.8)
            words = f"{method}, {pool} ({epochs[-1]:.0f} epochs)"
            axis.annotate(words, (minutes[-1], values[-1]), (6, 0), textcoords="offset points", va="center",
                          fontsize=8.5, color=colour, annotation_clip=False)  # fmt: skip
    axis.axhline(scratch, color=MUTED, linewidth=1.0, linestyle=(0, (1, 2)))
    axis.annotate("from scratch, same labels", (longest, scratch), (6, 0), textcoords="offset points", va="center",
                  fontsize=8.5, color=MUTED, annotation_clip=False)  # fmt: skip
    axis.set_xlim(0, longest)
    axis.set_xlabel("minutes of pre-training on one thread", color=LINE)
    axis.set_ylabel("top-1 %" if metric == "top1" else "balanced accuracy %", color=LINE)
    axis.set_title(f"k-NN in the features of {curve[0]['labels']:,} labelled images; at 0 the weights are random",
                   loc="left", fontsize=10.5, color=LINE)  # fmt: skip
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(colors=MUTED, labelsize=8.5)
    axis.grid(axis="y", color="#e6e6e6", linewidth=0.6)
    figure.subplots_adjust(left=0.09, right=0.76, top=0.91, bottom=0.12)
    figure.savefig(path)
    plt.close(figure)
