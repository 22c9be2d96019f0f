"""The report as Markdown beside pictures: shorter than the page, for a repository."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ssl_vit.report.cells import Cell, Table
from ssl_vit.report.page.blocks import (
    Block,
    Bullets,
    Checks,
    Grid,
    Page,
    Pairs,
    Plot,
    Words,
)

_LEFT_OUT = {"reproduce", "pictures", "tuning"}
_SIGNS = {True: "kept", False: "**not kept**", None: "not known"}


def markdown(report: Page) -> str:
    """The text; pictures are in ``figures/``.

    Args:
        report: What it says.
    """
    parts = [
        f"# {plain(report.question)} {plain(report.title)}",
        f"**{plain(report.sentence)}**",
        *map(plain, report.beside),
    ]
    parts += [_block(note) for note in report.notes]
    parts.append(" · ".join(f"{plain(value)} {plain(what)}" for value, what in report.numbers))
    for section in report.sections:
        if section.key not in _LEFT_OUT:
            parts.append(f"## {plain(section.title)}")
            parts += [text for block in section.blocks if (text := _block(block))]
    return "\n\n".join(parts) + "\n"


def plain(text: str) -> str:
    """Text in which nothing is a mark, a link or HTML.

    Args:
        text: Any.
    """
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*_|\[\]~#])", r"\\\1", text)
    return " ".join(text.split())


def _block(block: Block) -> str:
    match block:
        case Words():
            return f"> **Note:** {plain(block.text)}" if block.warning else plain(block.text)
        case Bullets():
            return "\n".join(f"- {plain(line)}" for line in block.lines)
        case Grid():
            return (f"### {plain(block.head)}\n\n" if block.head else "") + _table(block.table)
        case Plot():
            return f"![{plain(block.chart.alt)}](figures/{block.chart.name}.png)"
        case Checks():
            rows = [(_SIGNS[i.kept], plain(i.claim), plain(i.detail)) for i in block.items]
            return _lines(("", "promise", "what stands behind it"), rows, 3)
        case Pairs():
            told = [f"- {plain(words)}: {plain(one.title)} and {plain(two.title)}" for words, one, two in block.pairs]
            return "\n".join(told)
        case _:
            return ""


def _table(table: Table) -> str:
    heads = table.headings if any(table.headings) else ("fact", "value")
    text = _lines([plain(head) for head in heads], [[_cell(c) for c in row] for row in table.rows], table.numbers)
    return text + (f"\n\n{plain(table.note)}" if table.note else "")


def _cell(cell: Cell) -> str:
    words = plain(cell.text)
    if cell.code:
        words = "`" + " ".join(cell.text.replace("`", "'").split()).replace("|", "\\|") + "`"
    words = f"**{words}**" if cell.strong else words
    return f"{words} ({plain(', '.join(cell.minor))})" if cell.minor else words


def _lines(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: int) -> str:
    rule = ["---"] * numbers + ["---:"] * (len(heads) - numbers)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, rule, *rows))
