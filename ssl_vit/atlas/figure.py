"""The map of images as a figure of matplotlib, for notebooks."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ssl_vit.atlas.arrange import arrange, chosen_way, components

_COLOURED = 10
"""Classes with a colour of their own: more cannot be told apart."""
_GREY = "#b4b4ba"


class Shown(Figure):
    """A figure that a notebook shows where a cell ends with it, whatever its own backend is."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


def map_of(x: Float[np.ndarray, "n D"], labels: Sequence[Any] | None, title: str | None = None) -> Shown:
    """A point per image, near others that look alike to the network; colours are labels.

    Args:
        x: One vector per image.
        labels: Of each image a name or a number, None where it has none.
        title: Default: how many images, and how the map was made.
    """
    places, how = arrange(components(x), chosen_way("auto", len(x)))
    figure = Shown(figsize=(6.4, 5.0), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    size = float(np.clip(16000 / max(1, len(x)), 3, 30))
    given = [] if labels is None else [one for one in labels if one is not None]
    dots: dict[str, Any] = {"s": size, "linewidths": 0}
    if not given or labels is None:
        axes.scatter(*places.T, color="#3b6ea5", **dots)
    elif all(isinstance(one, (float, tuple)) for one in given):
        values = np.array([np.nan if one is None else np.ravel(one)[0] for one in labels], dtype=float)
        axes.scatter(*places[np.isnan(values)].T, color=_GREY, **dots)
        points = axes.scatter(*places[~np.isnan(values)].T, c=values[~np.isnan(values)], cmap="viridis", **dots)
        figure.colorbar(points, ax=axes, shrink=0.8)
    else:
        _classes(axes, places, [None if one is None else str(one) for one in labels], dots)
    axes.set(xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_color("#d9d9de")
    axes.set_title(title or f"{len(x):,} images by {how}", fontsize=10, parse_math=False)
    return figure


def _classes(axes: Any, places: Float[np.ndarray, "n 2"], labels: list[str | None], dots: dict[str, Any]) -> None:
    """The commonest classes in colours, all others and images without label in grey, below them."""
    counts = Counter(label for label in labels if label is not None)
    named = sorted(counts, key=lambda name: (-counts[name], name))
    coloured = sorted(named if len(named) <= _COLOURED else named[: _COLOURED - 1])
    others, drawn = [place not in coloured for place in labels], dict[str, Any]()
    if any(others):
        rest = [f"{len(named) - len(coloured)} other classes"] if len(named) > len(coloured) else []
        words = " or ".join([*rest, *(["no label"] if None in labels else [])])
        drawn[words] = axes.scatter(*places[others].T, color=_GREY, **dots)
    for number, name in enumerate(coloured):
        mine = [label == name for label in labels]
        drawn[name or "(empty)"] = axes.scatter(*places[mine].T, color=colormaps["tab10"](number), **dots)
    legend = axes.legend(  # by hand: a label that begins with an underscore would have no entry
        list(drawn.values()),
        list(drawn),
        loc="center left",
        bbox_to_anchor=(1, 0.5),
        frameon=False,
        fontsize=9,
        markerscale=(30 / dots["s"]) ** 0.5,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
