"""Names from people's data as pictures show them: on one line, short, in letters that the font has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache

from matplotlib import font_manager

from ssl_vit.core.text import shortened


@cache
def _letters() -> frozenset[int]:
    return frozenset(font_manager.get_font(font_manager.findfont(font_manager.FontProperties())).get_charmap())


def drawable(text: str) -> str:
    """On one line, with a question mark for what the pictures' font has no letter for."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return "".join(c if ord(c) in _letters() else "?" for c in line)


def class_names(classes: Sequence[str], most: int = 16) -> list[str]:
    """Names of classes in at most so many letters, of which no two look alike.

    A name that the pictures' font cannot write is "class 3"; names that shortening makes equal get their number.
    """
    shown = [drawable(name) for name in classes]
    plain = [
        shortened(new, most) if new.strip() and new.count("?") == name.count("?") else f"class {number}"
        for number, (new, name) in enumerate(zip(shown, classes, strict=True))
    ]
    times = Counter(plain)
    return [
        name if times[name] == 1 else f"{shortened(shown[number], most - len(str(number)) - 2)} #{number}"
        for number, name in enumerate(plain)
    ]


def file_name(where: str, most: int = 24) -> str:
    """The last part of what ``ImageSet.where`` says of an image."""
    last = re.split(r"[/\\]", where)[-1]
    return shortened(drawable(last if "(" in last else last.removesuffix(")")), most)
