"""Reports of made-up numbers, and what a page of them holds."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from ssl_vit.report.findings.recommendation import Recommendation
from ssl_vit.report.findings.records import Score, Verdict, read_verdict
from ssl_vit.report.findings.tables import interval_of, method_name, way_of
from ssl_vit.report.page.write import write_report
from ssl_vit.runs.identity import digest
from ssl_vit.statistics.advice import Advice, Attribution, Way

from made_verdict import SMALL, make_verdict, no_leaks

ROOT = Path(__file__).resolve().parents[1]
EVIL = '<script>alert("x")</script>'
CLASSES = (EVIL, 'a "quoted" | piped & class of $x_1$ \u4e2d', r"back\meadow \1 \g<0> " + "unbroken" * 12)
_VOID = {"meta", "img", "wbr", "br"}


class Seen(HTMLParser):
    """What a page holds; complains about tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    def values(self, name: str) -> list[str]:
        return [value for attribute, value in self.attributes if attribute == name]


def small(folder: Path, curves: Any = SMALL, **options: Any) -> Path:
    given = {"labels": (10, 100), "images": 30, "classes": CLASSES, "draws": (3, 3), "leaks": no_leaks()}
    return make_verdict(folder, curves, **(given | options))


def recommended(verdict: Verdict) -> Recommendation:
    """The best by its mean with any number of labels, and nothing claimed of pre-training."""
    advice: list[Advice] = []
    for labels in verdict.about["labels"]:
        scores: dict[Way, list[Score]] = {}
        for score in verdict.scores:
            if score.labels == labels:
                scores.setdefault(way_of(score), []).append(score)
        found = {way: interval_of(some, verdict.clusters) for way, some in scores.items()}
        best, *others = sorted(found, key=lambda way: -found[way].estimate)
        value, reason = found[best], "" if len(scores[best]) > 2 else "too few to tell"
        told = (value.estimate, value.low, value.high, (best, *others[:1]), tuple(others[1:]), not reason, reason)
        advice.append(Advice(labels, best, *told))
    sentences = tuple(f"With {one.labels:,} labels: {method_name(verdict, one.advised)}." for one in advice)
    refused = tuple(Attribution(one.labels, None, refused="nothing was looked at") for one in advice)
    return Recommendation(tuple(advice), refused, sentences, "Pre-training pays.", ("Nothing failed.",))


def written(folder: Path) -> tuple[str, Seen, str]:
    """The page, what it holds, and the Markdown."""
    write_report(read_verdict(folder))
    page = (folder / "report.html").read_text()
    return page, Seen(page), (folder / "report.md").read_text()


def check_words(*texts: str) -> None:
    """No number that is none, no None, no object."""
    for text in texts:
        assert not re.search(r"\b(nan|NaN|None|inf|Undefined|object at)\b", text), re.search(
            r".{40}\b(nan|NaN|None|inf)\b", text
        )


def a_run(
    folder: Path, method: str, values: dict[str, float], *, test: str = "t", seed: int = 0, weights: str | None = None,
    draw: int | None = None, ratio: float = 0.5,
) -> Path:  # fmt: skip
    """A run directory with one result, as the evaluations write them."""
    protocol = {"evaluation": method, "kind": "class", "metric": "top1", "train": "whole",
                "test": {"images": 30, "fingerprint": test, "split": "a fifth"}}  # fmt: skip
    rows = [
        {"method": name, "top1": value, "images": 30, "per_class": {"a": value, "b": value}}
        for name, value in values.items()
    ]
    backbone = {"folder": str(folder / "backbone"), "options": {"seed": seed, "mae": {"mask_ratio": ratio}}}
    content = {
        "method": method, "rows": rows, "protocol": protocol, "protocol_hash": digest(protocol), "labels_used": 100,
        "draw": draw, "seed": seed, "data": {"name": "digits", "test": test},
        "backbone": {**backbone, "weights": weights} if weights else None,
        "made_with": {"command": f"eval/{method}.py --backbone {folder.name}", "commit": "c0ffee"},
    }  # fmt: skip
    path = folder / "results" / f"{method}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return folder


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """eval/report.py where torch and its company cannot be imported."""
    code = (
        "import runpy, sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('torch', 'timm', 'sklearn', 'datasets', 'accelerate'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "eval/report.py"), *map(str, words)],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
