"""The report as one page without script, network or anything beside it, and shorter as Markdown beside pictures."""

from __future__ import annotations

import base64
import re
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ssl_vit.report.cells import NOTHING
from ssl_vit.report.look import palette
from ssl_vit.report.page.blocks import Page

_INTERVAL = re.compile(r"(\([^()]*95 % interval[^()]*\))")


def html(report: Page) -> str:
    """The text of the page."""
    return _environment().get_template("report.html.j2").render(page=report, palette=palette())


def markdown(report: Page) -> str:
    """The text whose pictures are in ``figures/``."""
    return _environment().get_template("report.md.j2").render(page=report).strip() + "\n"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("ssl_vit.report.page"), autoescape=lambda name: name == "report.html.j2",
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters |= {
        "typeset": typeset, "data_uri": _data_uri, "svg": Markup, "breakable": _breakable, "plain": plain,
        "quoted": _quoted, "kind": lambda block: type(block).__name__,
    }  # fmt: skip
    return made


def typeset(text: str) -> Markup:
    """Plain words with a minus where one is meant, units that stay with numbers, and intervals in lighter letters."""
    if text == NOTHING:
        return Markup("\N{EN DASH}")
    parts = _INTERVAL.split(text)  # every second one is an interval
    for i, part in enumerate(parts):
        # From one number to another, never broken between them.
        whole = re.sub(r"(?<=\d)-(?=\d)", "\N{WORD JOINER}\N{EN DASH}\N{WORD JOINER}", part) if i % 2 else part
        parts[i] = Markup('<span class="ci">{}</span>').format(_words(whole)) if i % 2 else _words(part)
    return Markup("").join(parts)


def _words(text: str) -> Markup:
    text = re.sub(r"(?<![\w.-])-(?=\d)", "\N{MINUS SIGN}", text).replace("k-NN", "k\N{NON-BREAKING HYPHEN}NN")
    text = text.replace(" -> ", " \N{RIGHTWARDS ARROW} ")
    units = r"(?<=\d) (?=%|px|s\b|h\b|min\b|GB\b|MB\b|[KMGTPEZ]FLOP|points?\b|labels?\b)"
    text = str(escape(re.sub(units, "\N{NO-BREAK SPACE}", text)))
    return Markup(re.sub(r"(?<![\w-])--[a-z][\w.]*\w", r'<span class="option">\g<0></span>', text))


def _breakable(text: str) -> Markup:
    """A command or path that may be broken behind its separators."""
    return Markup("").join(Markup("{}<wbr>").format(part) for part in re.split(r"(?<=[/=_.,])", text))


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


def plain(text: str) -> str:
    """Text of Markdown in which nothing is a mark, a link or HTML."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(re.sub(r"([\\`*_|\[\]~#])", r"\\\1", text).split())


def _quoted(text: str) -> str:
    """A command in Markdown, on one line."""
    return "`" + " ".join(text.replace("`", "'").split()).replace("|", "\\|") + "`"
