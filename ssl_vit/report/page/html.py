"""The report as one page: no script, no network, nothing beside it."""

from __future__ import annotations

import base64
import re
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ssl_vit.report.cells import NOTHING
from ssl_vit.report.look import SHAPES, Look, palette
from ssl_vit.report.page.blocks import Page

_INTERVAL = re.compile(r"\([^()]*95 % interval[^()]*\)")


def page(report: Page) -> str:
    """The page's text.

    Args:
        report: What it says.
    """
    return _environment().get_template("report.html.j2").render(page=report, palette=palette())


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("ssl_vit.report.page"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    made.filters |= {"typeset": typeset, "data_uri": _data_uri, "svg": Markup, "breakable": _breakable}
    made.globals |= {"mark": _mark, "swatch": _swatch}
    return made


def typeset(text: str) -> Markup:
    """Words with a minus where one is meant, units that stay with their numbers, and intervals in lighter letters.

    Args:
        text: Plain; it is escaped here.
    """
    if text == NOTHING:
        return Markup("\N{EN DASH}")
    parts: list[str | Markup] = []
    end = 0
    for found in _INTERVAL.finditer(text):
        parts += [
            _words(text[end : found.start()]),
            Markup('<span class="ci">{}</span>').format(_words(_range(found[0]))),
        ]
        end = found.end()
    return Markup("").join([*parts, _words(text[end:])])


def _range(text: str) -> str:
    """From one number to another, never broken between them."""
    return re.sub(r"(?<=\d)-(?=\d)", "\N{WORD JOINER}\N{EN DASH}\N{WORD JOINER}", text)


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


def _mark(look: Look) -> Markup:
    """A marker in its colour."""
    return Markup(
        '<svg class="mark" viewBox="0 0 10 10" aria-hidden="true"><path d="{}" fill="var(--c-{})"/></svg>'
    ).format(SHAPES[look.marker], look.css)


def _swatch(look: Look) -> Markup:
    """A piece of a line with its marker."""
    return Markup(
        '<svg class="swatch" viewBox="0 0 34 10" aria-hidden="true">'
        '<path d="M1 5H33" fill="none" stroke="var(--c-{0})" stroke-width="2" stroke-dasharray="{1}"/>'
        '<path d="{2}" transform="translate(12 0)" fill="var(--c-{0})"/></svg>'
    ).format(look.css, " ".join(f"{2 * part:g}" for part in look.dash) or "none", SHAPES[look.marker])
