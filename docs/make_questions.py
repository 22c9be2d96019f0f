"""Puts a made page of questions among the documentation: ``python docs/make_questions.py RUN NAME``.

RUN is the folder of ``ssl-vit questions``; its Markdown and figures become docs/questions/NAME, drawn again from the
numbers. The list at the end of docs/questions.md is made anew from all that is there.
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

DOCS = Path(__file__).parent
MARK = "<!-- made by docs/make_questions.py from here on -->"


def add(run: Path, name: str, docs: Path = DOCS) -> Path:
    """Copies a page with its figures and numbers, and lists it.

    Args:
        run: Of finished questions.
        name: What its folder is called: letters, digits, hyphens.
        docs: Where the documentation is.

    Returns:
        The new folder.

    Raises:
        ValueError: For a name that is none.
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise ValueError(f"{name} is no name for a folder: small letters, digits and hyphens")
    write_page(run)
    to = docs / "questions" / name
    shutil.rmtree(to, ignore_errors=True)
    (to / "figures").mkdir(parents=True)
    page = (run / "questions.md").read_text(encoding="utf-8")
    (to / "questions.md").write_text(page, encoding="utf-8")
    shutil.copyfile(run / MEASURED, to / MEASURED)
    for figure in sorted(set(re.findall(r"\]\(figures/([\w-]+\.png)\)", page))):
        shutil.copyfile(run / "figures" / figure, to / "figures" / figure)
    told = docs / "questions.md"
    before = told.read_text(encoding="utf-8").partition(MARK)[0]
    told.write_text(f"{before}{MARK}\n\n{listing(docs)}\n", encoding="utf-8")
    return to


def listing(docs: Path = DOCS) -> str:
    """All pages as Markdown: images, time taken, and what the page says first.

    Args:
        docs: Where the documentation is.
    """
    rows: list[str] = []
    for folder in sorted(path.parent for path in (docs / "questions").glob("*/questions.md")):
        about = json.loads((folder / MEASURED).read_text(encoding="utf-8"))["about"]
        first = re.search(r"^\*\*(.+)\*\*$", (folder / "questions.md").read_text(encoding="utf-8"), re.MULTILINE)
        rows.append(
            f"| [{folder.name}](questions/{folder.name}/questions.md), {about['labels'][-1]:,} training labels | "
            f"{duration(about['seconds'])} | {first[1] if first else ''} |"
        )
    return "\n".join(["| images | taken | in one sentence |", "| --- | --- | --- |", *rows]) if rows else "None yet."


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
