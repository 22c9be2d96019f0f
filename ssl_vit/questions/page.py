"""From measured.json to questions.html, questions.md and their figures. Needs no torch, and no network to look at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ssl_vit.core.errors import UserError
from ssl_vit.core.files import write_atomically, write_bytes_atomically
from ssl_vit.core.text import duration
from ssl_vit.questions.drawing import LOOKS
from ssl_vit.questions.numbers import Finding
from ssl_vit.questions.question import Question
from ssl_vit.questions.scope import NETS, TITLES
from ssl_vit.questions.table import QUESTIONS
from ssl_vit.questions.words import comparison_rows, reply
from ssl_vit.report.cells import Cell, Row, Table, count, enumerated, operations, seconds, table
from ssl_vit.report.charts.canvas import Chart, make_chart
from ssl_vit.report.page.blocks import Block, Bullets, Code, Fold, Page, Section, Words
from ssl_vit.report.page.render import html, markdown

MEASURED = "measured.json"


def read_measured(folder: str | Path) -> dict[str, Any]:
    """The numbers of finished questions.

    Args:
        folder: Theirs.

    Raises:
        UserError: Where there are none.
    """
    path = Path(folder).expanduser() / MEASURED
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"{folder} holds no finished questions (no {MEASURED}); ssl-vit questions --run.dir {folder} makes or "
            "continues them"
        ) from error
    except ValueError as error:
        raise UserError(
            f"{path} is damaged ({error}); delete it and repeat the command, which trains nothing again"
        ) from error


def write_page(folder: str | Path) -> Page:
    """Draws and writes everything again from the numbers that are there.

    Args:
        folder: Of finished questions.
    """
    place, measured = Path(folder).expanduser(), read_measured(folder)
    page = build(measured)
    for chart in (block for section in page.sections for block in section.blocks if isinstance(block, Chart)):
        write_bytes_atomically(place / "figures" / f"{chart.name}.png", chart.png)
    write_atomically(place / "questions.md", markdown(page))
    write_atomically(place / "questions.html", html(page))
    return page


def build(measured: Mapping[str, Any]) -> Page:
    """The page.

    Args:
        measured: Content of measured.json.
    """
    about, found = measured["about"], measured["questions"]
    answered = {name: question for name, question in QUESTIONS.items() if name in found}
    sections = [_section(question, found[name]) for name, question in answered.items()]
    sections += [
        Section("networks", "Networks", [_networks(about)]),
        Section("made", "How this was made", _made(about)),
    ]
    return Page(
        title=str(about["data"]),
        sentence=summary({name: reply(question.stands_on(found[name])) for name, question in answered.items()}),
        beside=tuple(_beside(about)),
        refused=False,
        sections=sections,
        looks=LOOKS,
        question="Questions about Vision Transformers",
    )


def summary(replies: Mapping[str, str]) -> str:
    """All answers in a sentence, by what they begin with.

    Args:
        replies: By question.
    """
    groups: dict[str, list[str]] = {}
    for name, words in replies.items():
        groups.setdefault(words, []).append(QUESTIONS[name].short)
    return " ".join(f"{words}: {enumerated(names)}." for words, names in groups.items())


def _section(question: Question, finding: Finding) -> Section:
    blocks: list[Block] = [
        Words(f"{reply(question.stands_on(finding))}. {question.answer(finding)}"),
        Words(f"In the literature: {question.literature}", note=True),
        Words(f"Here: {question.judged}", note=True),
    ]
    for figure in question.figures(finding):
        blocks += [make_chart(figure.name, figure.panels, figure.columns), Words(figure.sentence, note=True)]
    rows = comparison_rows(finding["comparisons"], question.claims)
    blocks.append(Fold(f"All {len(rows.rows)} comparisons", [rows]))
    return Section(question.name, question.title, blocks)


def _beside(about: Mapping[str, Any]) -> list[str]:
    labels = ", ".join(count(n) for n in about["labels"])
    words = [
        f"{count(about['test_images'])} test images of {about['data']}; {labels} labels; {about['draws']} draws of "
        "labels, each with seeds of its own.",
        "Seen, not seen here and the opposite are told by paired differences, adjusted for all comparisons of a "
        "question (Holm, 0.05); brackets hold 95 % intervals, each for itself. Likely is what only its own interval "
        "shows. That there is no difference is told where the interval lies within 3 points.",
    ]
    return [*words, *([f"Cut: {'; '.join(about['notes'])}."] if about["notes"] else [])]


def _networks(about: Mapping[str, Any]) -> Table:
    rows: list[Row] = [
        [
            Cell(NETS[one["net"]].title, start=NETS[one["net"]].look), one["model"], f"{one['img_size']} px",
            count(one["parameters"]), operations(one["flops_per_image"]),
        ]
        for one in about["networks"]
    ]  # fmt: skip
    heads = ("network", "timm model", "input", "parameters", "operations of an image")
    note = (
        "Operations of a step of training, forwards and backwards, per image. Networks beside the ViT read images "
        "enlarged so that they end in a map as fine as its patches; a ResNet's input has the ViT's operations instead."
    )
    return table(heads, rows, 3, note)


def _made(about: Mapping[str, Any]) -> list[Block]:
    plan = about["plan"]
    rows: list[Row] = [[one["what"], count(one["units"]), seconds(one["seconds"])] for one in plan["lines"]]
    words = f"Expected {duration(plan['expected'])}, taken {duration(about['seconds'])}"
    words += f", of {duration(plan['budget'])}" if plan["budget"] else ", without a limit"
    words += f"; {about['jobs']} at a time" if about["jobs"] > 1 else ""
    words += f"; {about['sessions']} sessions" if about["sessions"] > 1 else ""
    rates = [(TITLES.get(what, what), rate) for what, rate in about["rates"].items()]
    failed = [f"{key}: {why}" for key, why in about["failed"].items()]
    return [
        Words(
            f"{words}. {count(about['steps'])} steps of every training on labels. {about['batch']} images a step; "
            f"learning rates, for every network alike: {', '.join(f'{what} {rate:g}' for what, rate in rates)}."
        ),
        *(
            [Words("Some trainings diverged or collapsed, and are in no figure:", warning=True), Bullets(failed)]
            if failed
            else []
        ),
        Fold("What was planned", [table(("work", "tasks", "each"), rows, 1)]),
        Words(f"{about['hardware']}; {about['versions']}; commit {about['commit']}.", note=True),
        Code(about["command"]),
    ]
