"""Tables of ``bench_statistics.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reports import made_by, paragraph, write

KINDS = (
    "ours",
    "before",
    "test images as given",
    "groups forgotten",
    "nesting forgotten",
    "bootstrap over seeds",
    "McNemar",
)
_FEW = ("ours", "before", "test images as given", "McNemar")
_NEW = ("ours", "before", "failures averaged", "groups forgotten", "bootstrap over seeds")
_DESIGN = ("chance", "accuracy", "seeds, draws", "images", "groups")


def report(parts: dict[str, Any], out: Path, doc: str | None) -> None:
    """OUT/statistics.json and .md.

    Args:
        parts: Rows of every table, how often each was simulated, and how they were made.
        out: Folder.
        doc: The benchmark's own explanation.
    """
    times, rows = parts["times"], parts["worlds"]
    ours = [row["coverage"]["ours"] for row in rows]
    alarms = [100 - row["coverage"]["ours"] for row in rows if not row["gain"]]
    drawn = [row["coverage"]["ours"] for row in parts["random"]]
    before = [row["coverage"]["before"] for row in (*rows, *parts["new"]) if "before" in row["coverage"]]
    new = [row["coverage"]["ours"] for row in parts["new"]]
    doubt = 196 * (0.05 * 0.95 / times) ** 0.5
    lines = [
        "# Do the statistics hold?", "",
        paragraph(doc, 2), "",
        paragraph(doc, 3), "",
        f"{times:,} simulations a row: a coverage near 95 % is known to ± {doubt:.1f} points.", "",
        f"- 95 % intervals should cover 93 to 98 %: {_inside(ours)} of {len(ours)} rows do{_range(ours)}, and where an",
        f"  outside simulation found them short {_inside(new)} of {len(new)}{_range(new)}.",
        f"- Before they were never narrower than chance in the test images, {_inside(before)} of {len(before)} "
        f"did{_range(before)}.",
        f"- Equal methods raise {max(alarms):.1f} % false alarms or fewer.", "",
        "## Coverage in percent", "",
        'What chance mainly comes from. "McNemar" is 100 less its false alarms.', "",
        *_table(
            (*_DESIGN, "± points", *KINDS),
            [
                (*_design(row), f"{row['width']:.2f}", *(_covered(row["coverage"], kind) for kind in KINDS))
                for row in rows
            ],
        ), "",
        "## Few draws, seeds and images, high accuracies, one large group, failed trainings", "",
        "With fewer than three draws or seeds the truth is that of these backbones, and nothing is claimed. Where",
        "trainings fail, those that did are left out, and so are simulations with fewer than three draws left.", "",
        *_table(
            (*_DESIGN, "± points", *_NEW),
            [
                (*_design(row), f"{row['width']:.2f}", *(_covered(row["coverage"], kind) for kind in _NEW))
                for row in parts["new"]
            ],
        ), "",
        "## Worlds drawn at random", "",
        "The rule for the degrees of freedom was chosen by looking at the worlds above, not at these, of which every",
        f"spread was drawn at random. {times // 2:,} simulations a row: {_inside(drawn)} of {len(drawn)} rows cover",
        f"93 to 98 %{_range(drawn)}, {sum(drawn) / len(drawn):.1f} on average.", "",
        *_table(
            (*_DESIGN, "± points", *_FEW),
            [
                (*_design(row), f"{row['width']:.2f}", *(_covered(row["coverage"], kind) for kind in _FEW))
                for row in sorted(parts["random"], key=lambda row: row["coverage"]["ours"])
            ],
        ), "",
        "## Differences averaged over four numbers of labels, equal methods", "",
        *_table(
            (*_DESIGN, "± points", "covered"),
            [(*_design(row), f"{row['width']:.2f}", f"**{row['covered']:.1f}**") for row in parts["curves"]],
        ), "",
        "## Labels needed for the baseline's level", "",
        'A method at 10, 30, 100 and 300 labels. "Both ends": how often the 95 % confidence set ends inside what was',
        "tried, and then its upper end over its lower one. Sets may cover more than 95 %: they have no gaps.", "",
        *_table(
            (*_DESIGN, "true number", "median estimate", "covered", "both ends", "upper/lower"),
            [
                (*_design(row), f"{row['truth']:.0f}", f"{row['median']:.0f}", f"**{row['covered']:.1f}**",
                 f"{row['bounded']:.0f} %", "" if row["ratio"] is None else f"{row['ratio']:.1f}")
                for row in parts["savings"]
            ],
        ), "",
        "## Other metrics", "",
        "Equal methods, 366 images of which a fifth are of one of two classes, 3 seeds, 5 draws; AUROC and macro-F1",
        f"through the jackknife over 50 blocks. {parts['metrics'][0]['times']:,} simulations.", "",
        *_table(
            ("metric", "± points", "covered"),
            [(row["metric"], f"{row['width']:.2f}", f"**{row['covered']:.1f}**") for row in parts["metrics"]],
        ), "",
        "## Only seeds vary, nothing but values", "",
        *_table(
            ("seeds", "ours (a t interval)", "percentile bootstrap"),
            [(str(r["seeds"]), f"**{r['ours']:.1f}**", f"{r['bootstrap']:.1f}") for r in parts["seeds"]],
        ), "",
        made_by(parts["about"], ("numpy", "scipy", "statsmodels")),
    ]  # fmt: skip
    write(out, "statistics", parts, lines)
    print("\n".join(lines))


def _table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    cells = [headings, ("---", *["---:"] * (len(headings) - 1)), *rows]
    return ["| " + " | ".join(row) + " |" for row in cells]


def _design(row: dict[str, Any]) -> tuple[str, ...]:
    groups = f"{row['groups']}" if row["groups"] else ""
    return (
        row["world"],
        f"{100 * row['accuracy']:.3g} %",
        f"{row['seeds']}, {row['draws']}",
        f"{row['images']:,}",
        groups,
    )


def _inside(values: list[float]) -> int:
    return sum(93 <= value <= 98 for value in values)


def _range(values: list[float]) -> str:
    return f" ({min(values):.1f} to {max(values):.1f})"


def _covered(found: dict[str, float], kind: str) -> str:
    if kind not in found:
        return ""
    return f"**{found[kind]:.1f}**" if kind == "ours" else f"{found[kind]:.1f}"
