"""The leak guard's findings (leaks.json, written by ssl_vit/data/audit.py) in a report."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from ssl_vit.report.blocks import Block, Pairs, Picture, Words
from ssl_vit.report.cells import count
from ssl_vit.report.records import Verdict

_KINDS = {"same": "the same image", "exact": "exact copies", "near": "near duplicates", "group": "one group"}
_SETS = {"pool": "images to pre-train on", "train": "training images", "test": "test images"}


def leak_sentences(verdict: Verdict) -> list[str]:
    """What leaks, for the top of the report; empty where nothing does."""
    found = (verdict.leaks or {}).get("findings", [])
    return [str(one["sentence"]) for one in found if one.get("leak")]


def leak_blocks(verdict: Verdict) -> list[Block]:
    """The section."""
    leaks = verdict.leaks
    if leaks is None:
        return [Words("The leak guard has not looked at these images.", warning=True)]
    images = leaks.get("images") or {}
    looked = ", ".join(f"{count(images[key])} {words}" for key, words in _SETS.items() if images.get(key) is not None)
    blocks: list[Block] = [Words(f"Every image was compared with every other: {looked}.")] if looked else []
    found = leaks.get("findings", [])
    blocks += [Words(str(one["sentence"]), warning=bool(one.get("leak"))) for one in found]
    blocks += [
        Words(str(sentence))
        for sentence in leaks.get("sentences", [])
        if not any(sentence == f["sentence"] for f in found)
    ]
    pairs = [pair for one in leaks.get("examples", []) if (pair := _pair(one))]
    return [*blocks, Pairs(tuple(pairs))] if pairs else blocks


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
