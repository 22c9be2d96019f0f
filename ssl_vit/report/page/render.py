"""The report as one page without script, network or anything beside it, and shorter as Markdown beside pictures."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ssl_vit.core.glossary import PATTERNS, Word, words_in
from ssl_vit.core.text import aligned
from ssl_vit.report.cells import NOTHING
from ssl_vit.report.look import KINDS, palette
from ssl_vit.report.page.blocks import Glossary, Page, Section

_TAG = re.compile(r"<[^>]*>")
_UNREAD = re.compile(
    r"<(?:head|nav|style|svg|code|pre|a|summary)\b[^>]*>.*?</(?:head|nav|style|svg|code|pre|a|summary)>"
    r'|<section id="words">.*?</section>',
    re.DOTALL,
)
"""Parts of a page in which no word is explained."""
_INTERVAL = re.compile(r"(\([^()]*(?:95 % interval|\d to \d)[^()]*\))")


def html(report: Page) -> str:
    """The text of the page; a house word leads to its meaning where it first stands."""
    template = _environment().get_template("report.html.j2")
    words = words_in(_TAG.sub(" ", _UNREAD.sub("", template.render(page=report))))
    return _linked(template.render(page=_explained(report, words)), words)


def markdown(report: Page) -> str:
    """The text whose pictures are in ``figures/``."""
    template = _environment().get_template("report.md.j2")
    report = _explained(report, words_in(template.render(page=report)))
    return template.render(page=report).strip() + "\n"


def terminal(report: Page) -> str:
    """The first of it for a screen: what to use, for every number of labels, and what stands beside it."""
    rows = [(f"{one.labels:,}", ", ".join(filter(None, (one.name, one.use))), one.value, one.span or NOTHING,
             "; ".join(filter(None, (one.beside, one.doubt)))) for one in report.strip]  # fmt: skip
    strip = [aligned([("labels", "use", "expect", "95 % interval", ""), *rows])] if rows else []
    return "\n".join([report.sentence, *strip, *report.beside])


def _explained(report: Page, words: Sequence[Word]) -> Page:
    section = Section("words", "Words", [Glossary(words)])
    return report._replace(sections=[*report.sections, section]) if words else report


def _linked(page: str, words: Sequence[Word]) -> str:
    """A page in which the first place of every word is a link to its meaning, which pointing at it shows, too."""
    left, parts = list(words), re.split(rf"({_UNREAD.pattern}|{_TAG.pattern})", page, flags=re.DOTALL)
    for i in range(0, len(parts), 2):  # every second one is a tag, or what nobody reads as a sentence
        found = {word: match for word in left if (match := PATTERNS[word].search(parts[i]))}
        end = len(parts[i])
        for word, match in sorted(found.items(), key=lambda item: -item[1].start()):
            if match.end() > end:
                continue  # part of another word's link; it gets the next place
            link = Markup('<a class="word" href="#word-{}" title="{}">').format(word.anchor, word.meaning)
            parts[i] = f"{parts[i][: match.start()]}{link}{match[0]}</a>{parts[i][match.end() :]}"
            left.remove(word)
            end = match.start()
    return "".join(parts)


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
    made.globals |= {"palette": palette(), "kinds": KINDS}
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
