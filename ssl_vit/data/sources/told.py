"""What the first lines of a run say of labelled images."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np

from ssl_vit.configs.metrics import METRICS
from ssl_vit.data.images import ImageSet
from ssl_vit.data.leading import headline, led_by
from ssl_vit.data.sources.opening import Labelled

_MOST = 8
"""Classes that are named."""
_TEXT = (".csv", ".tsv")
_READ = 1_000_000
"""Characters of a table that are looked at."""
_OWN = ({"file", "prediction", "certainty"}, {"path", "v0", "v1"})
"""Columns of the tables that ``ssl-vit predict`` and ``ssl-vit embed`` write: guesses and vectors are no labels."""


def label_lines(data: Labelled, metric: str | None = None) -> list[tuple[str, str]]:
    """Where labels come from, how many images have one, what they say, and which images are judged by what.

    Args:
        data: The labelled images.
        metric: What tables lead with; None for what they do where nobody has chosen one.
    """
    train, test = data.train, data.test
    both = np.concatenate([train.truth, test.truth])
    if train.kind == "regression":
        ends = zip(train.classes, both.min(axis=0), both.max(axis=0), strict=True)
        what, told = "numbers", [f"{name} {low:.4g} to {high:.4g}" for name, low, high in ends]
    else:
        several = train.kind == "multilabel"
        counts = both.sum(axis=0).astype(int) if several else np.bincount(both, minlength=len(train.classes))
        what = "any number of" if several else "classes"
        told = [f"{name} {n:,}" for name, n in zip(train.classes, counts.tolist(), strict=True)]
    more = f" and {len(told) - _MOST:,} more" if len(told) > _MOST else ""
    metric = metric or headline(test.kind, test.truth)
    return [
        ("labels", data.labels),
        (what, f"{len(told):,}: {', '.join(told[:_MOST])}{more}"),
        ("test split", f"{len(test):,} images, {data.split}; {len(train):,} to learn from"),
        ("metric", f"{METRICS[metric].words}{led_by(metric, test)}"),
    ]


def unnamed_table(pool: ImageSet) -> str:
    """What to type where a table beside or in a folder of images names some of them, and nobody has named the table.

    Args:
        pool: Images of a folder.
    """
    folder = Path(pool.name).expanduser()
    if not folder.is_dir():
        return ""
    names = {Path(pool.where(i)).name for i in range(len(pool))}
    # Numbers stand in any table; so a name without its ending counts where it is none.
    names |= {stem for name in names if not (stem := Path(name).stem).isdigit()}
    found: list[str] = []
    for file in sorted(f for place in (folder, folder / "..") for ending in _TEXT for f in place.glob(f"*{ending}")):
        words = set[str]()
        if file.is_file():  # a pipe would be waited for
            with suppress(OSError), file.open(encoding="utf-8", errors="replace") as text:
                words = set(re.split(r'[,;\t\r\n"/\\]+', text.read(_READ)))
        if len(words & names) > 1 and not any(own <= words for own in _OWN):
            found.append(os.path.normpath(file))
    if not found:
        return ""
    verb = "names" if len(found) == 1 else "name"
    return f"note: {', '.join(found)} {verb} images of {folder}; --data.labels {found[0]} takes labels from it"


def print_lines(lines: Iterable[tuple[str, str]]) -> None:
    """Prints names and what they are, one below the other.

    Args:
        lines: Of a run's beginning.
    """
    print("\n".join(f"{name:<15} {text}" for name, text in lines), flush=True)
