"""Writes docs/glossary.md from the table of house words: ``python docs/make_glossary.py``."""

from __future__ import annotations

from pathlib import Path

from ssl_vit.core.glossary import WORDS

PAGE = Path(__file__).with_name("glossary.md")
HEAD = """# Words

<!-- made by docs/make_glossary.py; edit ssl_vit/core/glossary.py instead -->

What this project means by its words, as one would say it. Reports explain them where they first stand, and `--help`
before the options.
"""


def page() -> str:
    """The table as Markdown, with a heading per word that links lead to."""
    words = sorted(WORDS, key=lambda word: word.name.lower())
    return "\n".join([HEAD, *(f"### {word.name}\n\n{word.meaning}\n" for word in words)])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
