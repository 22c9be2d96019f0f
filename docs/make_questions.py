"""Puts a made page of questions among the documentation: ``python docs/make_questions.py RUN NAME``.

RUN is the folder of ``ssl-vit questions``; its Markdown and figures become docs/questions/NAME, drawn again from the
numbers. The list in docs/questions/README.md is made anew from all that is there.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from ssl_vit.core.text import duration
from ssl_vit.questions.page import MEASURED, write_page

PLACE = Path(__file__).with_name("questions")
HEAD = """# Questions so far

<!-- made by docs/make_questions.py; edit it instead -->

What `ssl-vit questions` said of real images, whatever it said ([how](../questions.md)). Each folder holds the page as
Markdown with its figures, and the numbers behind them; command, commit, versions and hardware are at its end.
"""


def add(run: Path, name: str, place: Path = PLACE) -> Path:
    """Copies a page with its figures and numbers, and lists it.

    Args:
        run: Of finished questions.
        name: What its folder is called: letters, digits, hyphens.
        place: Where pages are.

    Returns:
        The new folder.

    Raises:
        ValueError: For a name that is none.
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise ValueError(f"{name} is no name for a folder: small letters, digits and hyphens")
    write_page(run)
    to = place / name
    shutil.rmtree(to, ignore_errors=True)
    (to / "figures").mkdir(parents=True)
    page = (run / "questions.md").read_text(encoding="utf-8")
    (to / "questions.md").write_text(page, encoding="utf-8")
    shutil.copyfile(run / MEASURED, to / MEASURED)
    for figure in sorted(set(re.findall(r"\]\(figures/([\w-]+\.png)\)", page))):
        shutil.copyfile(run / "figures" / figure, to / "figures" / figure)
    (place / "README.md").write_text(listing(place), encoding="utf-8")
    return to


def listing(place: Path = PLACE) -> str:
    """All pages as Markdown: images, time taken, and what the page says first.

    Args:
        place: Where they are.
    """
    rows = []
    for folder in sorted(path.parent for path in place.glob("*/questions.md")):
        about = json.loads((folder / MEASURED).read_text(encoding="utf-8"))["about"]
        first = re.search(r"^\*\*(.+)\*\*$", (folder / "questions.md").read_text(encoding="utf-8"), re.MULTILINE)
        rows.append(
            f"| [{folder.name}]({folder.name}/questions.md), {about['labels'][-1]:,} training labels | "
            f"{duration(about['seconds'])} | {first[1] if first else ''} |"
        )
    table = ["| images | taken | in one sentence |", "| --- | --- | --- |", *rows] if rows else ["None yet."]
    return "\n".join([HEAD, *table, ""])


def main(words: Sequence[str] | None = None) -> None:
    """Adds what the command line names.

    Args:
        words: Default: those of the command line.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, help="the folder of ssl-vit questions")
    parser.add_argument("name", help="of the folder in docs/questions")
    given = parser.parse_args(words)
    print(add(given.run, given.name))


if __name__ == "__main__":
    main()
