"""Curves of ordinary runs, several in one picture: loss, learning rate, what was watched, health of the features."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from ssl_vit.configs.metrics import METRICS
from ssl_vit.core.errors import UserError
from ssl_vit.core.reading import loads
from ssl_vit.core.text import shortened
from ssl_vit.report.charts.canvas import HEIGHT, Chart, Panel, make_chart
from ssl_vit.report.charts.drawing import scaled
from ssl_vit.report.charts.placing import End, Placing, name_ends, room, wrapped
from ssl_vit.report.look import Look, palette
from ssl_vit.runs.networks import runs_near

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
_JOINTS = "-+/,"
"""What stands between the parts of a run's name."""
_TOGETHER = 3
"""Names of one line that are all told."""
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
            value = loads(line)
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
    height = max(HEIGHT, 0.8 + room(lines))
    panels = [
        Panel(_PANELS[key][0], partial(_draw, curves=curves, look=look, key=key), _told(key, curves), height)
        for key, curves in found.items() if curves
    ]  # fmt: skip
    return make_chart("training", panels)


def _draw(axis: Axes, curves: dict[str, Curve], look: dict[str, Look], key: str) -> Placing | None:
    for name, (epochs, values) in curves.items():
        # Few points are places where somebody looked; between many nothing was left out.
        marker = look[name].marker if len(epochs) <= 40 else "none"
        axis.plot(
            epochs, values, color=look[name].light, linewidth=1.3, marker=marker, markersize=3.5, markeredgewidth=0
        )
    scaled(axis, list(curves.values()), early=False, wide=key == "loss")
    axis.set(xlabel="epoch", ylabel=_PANELS[key][1])
    if len(look) == 1:
        return None
    ends = [(names, *curves[names[-1]]) for names in _alike(curves)]  # of which the last is seen
    return name_ends(axis, [End(_together(names), float(x[-1]), float(y[-1]), look[names[-1]]) for names, x, y in ends])


def _alike(curves: dict[str, Curve]) -> list[list[str]]:
    """Names of the same line together: the learning rate of several seeds."""
    found: list[list[str]] = []
    for name, own in curves.items():
        same = (names for names in found if all(map(np.array_equal, curves[names[0]], own)))
        if (group := next(same, None)) is None:
            found.append([name])
        else:
            group.append(name)
    return found


def _together(names: Sequence[str]) -> str:
    """Several names as one: the first, and of the others what they do not share with it."""
    first = _tokens(names[0])
    rest = ["".join(part for part in _tokens(name) if part not in first) or name for name in names[1:]]
    return ", ".join([names[0], *rest] if len(names) <= _TOGETHER else [names[0], f"{len(rest)} more"])


def _told(key: str, curves: dict[str, Curve]) -> str:
    return "; ".join(f"{name} ends at {values[-1]:.4g}" for name, (_, values) in curves.items()) + "."


def _lines(folder: Path) -> list[dict[str, Any]]:
    if not (folder / FILES[0]).is_file():
        what = "has no metrics.jsonl, as a run has" if folder.is_dir() else "is not there"
        raise UserError(f"{folder} {what}; give the folder of a run{runs_near(folder, FILES[0])}")
    found = [line for file in FILES for line in read_lines(folder / file)]
    if not any("loss" in line for line in found):
        raise UserError(f"{folder} has not logged a step yet; look again when it has trained for a while")
    return found


def _names(folders: Sequence[Path]) -> list[str]:
    """What each run is called: its folder, with those above it where that is not enough."""
    whole = [folder.resolve().parts for folder in folders]
    for depth in range(1, max(map(len, whole)) + 1):
        names = [shortened(name, 40) for name in told_apart(["/".join(parts[-depth:]) for parts in whole])]
        if len(set(names)) == len(names):
            return names
    raise UserError("a run is named twice; name every run once")


def told_apart(names: Sequence[str]) -> list[str]:
    """Names without the parts that all of them have, where one is longer than a line and that leaves them different.

    Args:
        names: Such as ``optim.base_lr=0.001+fit.epochs=9-seed-0``, of which seeds and options with values are parts.

    Returns:
        Such as ``base_lr=0.001-seed-0``: an option's group goes where one group alone has an option of that name.
    """
    if len(names) < 2 or not any("\n" in wrapped(name) for name in names):
        return list(names)
    parts = [_tokens(name) for name in names]
    common = set.intersection(*({part.rstrip(_JOINTS) for part in own} for own in parts))
    own = [[part for part in some if part.rstrip(_JOINTS) not in common] for some in parts]
    options = {part.partition("=")[0] for some in own for part in some if "=" in part}
    if len({option.rpartition(".")[2] for option in options}) == len(options):
        own = [[re.sub(r"^[^=]*\.(?=[^=.]*=)", "", part) for part in some] for some in own]
    found = ["".join(some).rstrip(_JOINTS) for some in own]
    return found if all(found) and len(set(found)) == len(set(names)) else list(names)


def _tokens(name: str) -> list[str]:
    """Parts of a run's name, each with what joins it to the next; a seed is one, and so is a number like 1e-05."""
    return [part for part in re.split(r"(?<=[+/,])(?<!\de\+)|(?<=-)(?<!seed-)(?<!\de-)", name) if part]
