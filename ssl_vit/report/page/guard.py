"""The leak guard's findings (leaks.json, written by ssl_vit/leaks/audit.py) in a report."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from ssl_vit.report.cells import count
from ssl_vit.report.page.blocks import Block, Code, Fold, Page, Pairs, Picture, Section, Words
from ssl_vit.report.page.render import html

_KINDS = {"same": "the same image", "exact": "exact copies", "near": "near duplicates", "group": "one group"}
_SETS = {"pool": "images to pre-train on", "train": "training images", "test": "test images"}


def leaks_page(title: str, leaks: dict[str, Any]) -> str:
    """What stopped a verdict on images of that name before anything was trained, as a page."""
    many, tests = len(leaks["affected"]), leaks["images"]["test"]
    sections = [Section("found", "What was found", _found(leaks))]
    sections += [Section("all", fold.title, fold.blocks) for fold in _every(leaks)]
    return html(
        Page(
            title=title,
            question="Leak guard",
            sentence=f"Nothing was trained: {many:,} of {tests:,} test images leak, so scores on them would mean less.",
            beside=(f"What can be done: {'; '.join(leaks['cures'])}; or go on with --data.on_leak warn.",),
            refused=True,
            sections=sections,
        )
    )


def leak_blocks(leaks: dict[str, Any] | None) -> list[Block]:
    """The section of a report; None where the leak guard did not look."""
    if leaks is None:
        return [Words("The leak guard has not looked at these images.", warning=True)]
    return [*_found(leaks), *_every(leaks)]


def _found(leaks: dict[str, Any]) -> list[Block]:
    images, found = leaks.get("images") or {}, leaks.get("findings", [])
    looked = ", ".join(f"{count(images[key])} {words}" for key, words in _SETS.items() if images.get(key) is not None)
    told = {str(one["sentence"]) for one in found}
    pairs = Pairs(pair for one in leaks.get("examples", []) if (pair := _pair(one)))
    return [
        *([Words(f"Every image was compared with every other: {looked}.")] if looked else []),
        *(Words(str(one["sentence"]), warning=bool(one.get("leak"))) for one in found),
        *(Words(str(sentence)) for sentence in leaks.get("sentences", []) if sentence not in told),
        *([pairs] if pairs else []),
    ]


def _every(leaks: dict[str, Any]) -> list[Fold]:
    """The names of all test images that leak, where there are any."""
    names = [str(name) for name in leaks.get("affected_images", [])]
    title = "The test image that leaks" if len(names) == 1 else f"All {len(names):,} test images that leak"
    return [Fold(title, [Code("\n".join(names))])] if names else []


def _pair(example: dict[str, Any]) -> tuple[str, Picture, Picture] | None:
    words = _KINDS.get(str(example.get("kind")), str(example.get("kind")))
    if example.get("kind") == "near" and example.get("distance") is not None:
        words += f", {100 * example['distance']:.0f} % apart"
    words += f", {example['change']}" if example.get("change") else ""
    words += ", the same file" if example.get("same_file") else ""
    first, second = (_picture(example.get(side) or {}) for side in ("first", "second"))
    return None if first is None or second is None else (words, first, second)


def _picture(told: dict[str, Any]) -> Picture | None:
    try:
        content = base64.b64decode(str(told.get("png", "")), validate=True)
    except binascii.Error:
        return None
    name = _SETS.get(str(told.get("set")), str(told.get("set")))
    return Picture(str(told.get("where", "")), name, content) if content else None
