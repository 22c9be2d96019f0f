"""Curves of ordinary runs, several in one picture: loss, learning rate, what was watched, health of the features."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from ssl_vit.configs.metrics import METRICS
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.core.text import shortened
from ssl_vit.report.charts.canvas import HEIGHT, Chart, Key, Panel, make_chart
from ssl_vit.report.charts.drawing import scaled
from ssl_vit.report.charts.placing import End, Placing, has_room, name_ends
from ssl_vit.report.look import Look, palette

FILES = ("metrics.jsonl", "health.jsonl")
"""Of a run, where numbers stand line by line."""
_WATCHED = "watch/knn_"
_PANELS = {
    "loss": ("Loss", "loss"),
    "lr": ("Learning rate", "learning rate"),
    **{f"{_WATCHED}{name}": ("k-NN on held-out training labels", metric.heading) for name, metric in METRICS.items()},
    "effective_rank": ("Effective rank of the features", "directions in use"),
    "feature_std": ("Spread of the features", "share of their length"),
    "drift/agreement": ("Neighbours of the start kept", "share"),
    "drift/cka": ("Likeness to the start", "linear CKA"),
    "teacher_entropy": ("Entropy of the teacher's answers", "nats"),
}
"""Title and name of the y axis by the key of a line."""
_POINTS = 300
"""Of a line: as good as a million."""
Curve = tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file with one in each line; half a line of a run that goes on is left out, and so is no file."""
    found: list[dict[str, Any]] = []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        found += [value] if isinstance(value, dict) else []
    return found


def curve(lines: Sequence[dict[str, Any]], key: str, over: str = "step") -> Curve:
    """One number of all lines that have it over another, thinned; what is no finite number is left out."""
    pairs = [
        (line[over], line[key]) for line in lines if all(isinstance(line.get(k), int | float) for k in (over, key))
    ]
    known = np.array([pair for pair in pairs if np.isfinite(pair).all()], dtype=np.float64).reshape(-1, 2)
    kept = np.arange(len(known) - 1, -1, -max(1, len(known) // _POINTS))[::-1]
    return known[kept, 0], known[kept, 1]


def training_chart(runs: Sequence[str | Path]) -> Chart:
    """Loss, learning rate, and what else the runs have written while they trained; a panel each, a line per run.

    Args:
        runs: Run directories; they may still train.

    Raises:
        UserError: Where one holds no run, or has not logged a step yet.
    """
    folders = [Path(run).expanduser() for run in runs]
    lines = {name: _lines(folder) for name, folder in zip(_names(folders), folders, strict=True)}
    found = {key: {name: own for name, told in lines.items() if len((own := curve(told, key, "epoch"))[0])}
             for key in _PANELS}  # fmt: skip
    look = dict(zip(lines, islice(cycle(palette().values()), len(lines)), strict=False))
    named = len(lines) > 1 and has_room(lines, HEIGHT - 0.8)
    panels = [
        Panel(_PANELS[key][0], partial(_draw, curves=curves, look=look, key=key, named=named), _told(key, curves))
        for key, curves in found.items() if curves
    ]  # fmt: skip
    keys = [] if named or len(lines) == 1 else [Key(name, look[name]) for name in lines]
    return make_chart("training", panels, legend=keys)


def _draw(axis: Axes, curves: dict[str, Curve], look: dict[str, Look], key: str, named: bool) -> Placing | None:
    for name, (epochs, values) in curves.items():
        # Few points are places where somebody looked; between many nothing was left out.
        marker = look[name].marker if len(epochs) <= 40 else "none"
        axis.plot(
            epochs, values, color=look[name].light, linewidth=1.3, marker=marker, markersize=3.5, markeredgewidth=0
        )
    scaled(axis, list(curves.values()), early=False, wide=key == "loss")
    axis.set(xlabel="epoch", ylabel=_PANELS[key][1])
    if not named:
        return None
    return name_ends(axis, [End(name, float(x[-1]), float(y[-1]), look[name]) for name, (x, y) in curves.items()])


def _told(key: str, curves: dict[str, Curve]) -> str:
    return "; ".join(f"{name} ends at {values[-1]:.4g}" for name, (_, values) in curves.items()) + "."


def _lines(folder: Path) -> list[dict[str, Any]]:
    if not (folder / FILES[0]).is_file():
        beside = [path.parent.name for path in folder.parent.glob(f"*/{FILES[0]}")] if folder.parent.is_dir() else []
        inside = sorted(path.parent.name for path in folder.glob(f"*/{FILES[0]}")) if folder.is_dir() else []
        named = f"; it holds the runs {', '.join(inside[:5])}: name one of them" if inside else ""
        what = "has no metrics.jsonl, as a run has" if folder.is_dir() else "is not there"
        raise UserError(f"{folder} {what}; give the folder of a run{named or did_you_mean(folder.name, beside)}")
    found = [line for file in FILES for line in read_lines(folder / file)]
    if not any("loss" in line for line in found):
        raise UserError(f"{folder} has not logged a step yet; look again when it has trained for a while")
    return found


def _names(folders: Sequence[Path]) -> list[str]:
    """What each run is called: its folder, with those above it where that is not enough."""
    whole = [folder.resolve().parts for folder in folders]
    for depth in range(1, max(map(len, whole)) + 1):
        names = [shortened("/".join(parts[-depth:]), 40) for parts in whole]
        if len(set(names)) == len(names):
            return names
    raise UserError("a run is named twice; name every run once")
