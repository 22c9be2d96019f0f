"""From a verdict to what its report says, in its order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from ssl_vit.configs.metrics import METRICS, shown
from ssl_vit.methods.starts import starts
from ssl_vit.report.cells import count, percent, seconds, span, table
from ssl_vit.report.charts import plots
from ssl_vit.report.findings import classes, facts, tables
from ssl_vit.report.findings.contract import check, counted
from ssl_vit.report.findings.leaking import bound_sentence
from ssl_vit.report.findings.limits import limits
from ssl_vit.report.findings.recommendation import Recommendation, recommend, without_failed
from ssl_vit.report.findings.records import Verdict
from ssl_vit.report.findings.saved import savings, savings_rows
from ssl_vit.report.look import LONGER, kind_of, looks
from ssl_vit.report.page.blocks import (
    Block,
    Bullets,
    Checks,
    Choice,
    Code,
    Fold,
    Gallery,
    Page,
    Picture,
    Section,
    Strip,
    Words,
)
from ssl_vit.report.page.guard import leak_blocks
from ssl_vit.statistics.advice import Advice

_PNG = b"\x89PNG\r\n\x1a\n"
_BANDS = (
    "Lines are means over draws of labels; bands are 95 % intervals over pre-training seeds, draws and test images. "
    "From scratch stands in every panel. Rings: what is advised."
)
_COMPARED = (
    "The best with pre-training less the best without, where the baseline had as many FLOPs as pre-training and "
    "fine-tuning together. Filled marks: p below 0.05 after Holm's adjustment over this table."
)


def build(verdict: Verdict, found: Recommendation | None = None) -> Page:
    """All of a report.

    Args:
        verdict: All numbers.
        found: What they advise; None to find it out.
    """
    found = found or recommend(verdict)
    commands, learned = facts.commands(verdict), without_failed(verdict)
    sections: list[tuple[str, str, Iterable[Block | None]]] = [
        ("curves", "Over the number of labels", _curves(verdict, learned, found)),
        ("attribution", "Is it pre-training?", _attribution(verdict, learned, found)),
        ("cost", "Cost", [tables.cost_rows(verdict)]),
        ("leaks", "Leak guard", [] if verdict.from_runs else leak_blocks(verdict.leaks)),
        ("pictures", "Pictures", _pictures(verdict)),
        ("classes", "Class by class", [classes.class_rows(learned), *_confusion(learned)]),
        ("data", "Data", [facts.data_rows(verdict)]),
        ("training", "Training", [*_plan(verdict), *_tuning(verdict), plots.loss_curves(verdict)]),
        ("contract", "Fair-baseline contract", [Checks((*check(verdict), *counted(verdict)))]),
        ("provenance", "Provenance",
         [*_provenance(verdict), Fold(f"{len(commands.rows):,} commands", [commands]) if commands else None]),
    ]  # fmt: skip
    made = [Section(key, title, [block for block in blocks if block]) for key, title, blocks in sections]
    leaks = [str(one["sentence"]) for one in verdict.leaking]
    words = [*leaks, "Scores on these images mean less.", bound_sentence(verdict)]
    return Page(
        title=str(verdict.about.get("title") or "runs"),
        sentence=" ".join(found.sentences),
        beside=(*((found.pays,) if found.pays else found.refused), *limits(learned)),
        refused=False,
        sections=[section for section in made if section.blocks],
        strip=Strip(_choice(verdict, one) for one in found.advice),
        notes=[Words(" ".join(words), warning=True)] if leaks else [],
        looks=looks(verdict.starts) | {"longer": LONGER} | {f"{start}+": LONGER for start in verdict.starts},
    )


def _choice(verdict: Verdict, one: Advice) -> Choice:
    """What to use with a number of labels, in few words."""
    metric, others = verdict.about["metric"], len(one.among) - 1
    (name, use), kind = tables.name_and_use(verdict, one.advised), kind_of(one.advised.start)
    as_good = f"{others} other{'s' * (others > 1)} may be as good"
    if others <= 0:
        as_good = "nothing else is as good" if one.worse else "nothing else was tried"
    unit = " %" if METRICS[metric].percent else ""
    return Choice(
        one.labels, one.advised.start, name, use or "trained on the labels", kind, shown(metric, one.expected) + unit,
        span(metric, one.low, one.high), as_good, one.reason or ("" if one.settled else "more draws may change this"),
    )  # fmt: skip


def _curves(verdict: Verdict, learned: Verdict, found: Recommendation) -> list[Block | None]:
    return [
        plots.curves(learned, found.advice),
        Words(_BANDS, note=True),
        tables.all_numbers(learned, found.advice),
        *map(Words, found.failed),
        *_left_out(verdict),
    ]


def _attribution(verdict: Verdict, learned: Verdict, found: Recommendation) -> list[Block | None]:
    chart = plots.attribution(verdict, found.attributions)
    rows = tables.attribution_rows(verdict, found.attributions)
    saved = savings_rows(verdict, savings(learned))
    return [chart, Words(_COMPARED, note=True) if chart else None, rows, *map(Words, found.refused), saved]


def _left_out(verdict: Verdict) -> list[Words]:
    """Names of exceptions are for those who can mend the program."""
    found: list[Words] = []
    for start, why in verdict.told("left_out").items():
        subject = known.subject if (known := starts().get(start)) else f"{start} was"
        why = re.sub(r" \(\w*(?:Error|Exception)\)", "", str(why)).rstrip(". ")
        found.append(Words(f"{subject} left out: {why}."))
    return found


def _confusion(verdict: Verdict) -> list[Block]:
    chart = plots.confusion_chart(verdict)
    if chart is not None:
        note = "Rows are true classes. " + plots.confusion_words(len(verdict.about["classes"]))
        return [chart, Words(note, note=True)]
    rows = ([t, p, count(n), percent(share)] for t, p, n, share in classes.most_confused(verdict))
    return [table(("true class", "taken for", "images, all draws", "of the class"), rows, 2)]


def _pictures(verdict: Verdict) -> list[Block]:
    """Those that were drawn, and in words those of which there is nothing to draw."""
    folder, drawn, told = verdict.folder / "pictures", list[Picture](), list[str]()
    try:
        listed = [] if verdict.from_runs else json.loads((folder / "pictures.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        listed = []
    for one in listed:
        start, caption = one.get("start"), str(one.get("caption") or "")
        title = f"{one['title']} ({verdict.name(start)})" if start else str(one["title"])
        path = folder / Path(str(one["file"])).name if one["file"] else None  # nothing outside the folder
        content = path.read_bytes() if path and path.is_file() else b""
        if content.startswith(_PNG):
            drawn.append(Picture(title, caption, content))
        elif not path and caption:
            told.append(f"{title}: {caption.removeprefix('No picture: ')}")
    return [Gallery(drawn), Bullets(told)]


def _tuning(verdict: Verdict) -> list[Block]:
    told = verdict.told("tuning")
    if not told:
        return []
    count, space = told.get("trials", "Some"), told.get("space", "options not recorded")
    trials = [found for use in tables.USES if (found := facts.tuning_rows(verdict, use))]
    said = [] if count == 1 else [Words(f"{count} trials for every method: {space}.")]
    return [*said, *([Fold("Every trial", trials)] if trials else [])]


def _plan(verdict: Verdict) -> list[Block]:
    plan = verdict.told("plan")
    if not plan:
        return []
    budget, sessions = plan.get("budget"), plan.get("sessions") or 1
    words = f"Expected {seconds(plan.get('expected'))}, taken {seconds(plan.get('taken'))}"
    words += f", budget {seconds(budget)}" if budget else ", no budget given"
    words += f"; {plan.get('jobs', 1)} at a time" + (f"; {sessions} sessions" if sessions > 1 else "") + "."
    notes = Bullets(facts.sentence(str(note)) for note in plan.get("notes", []))
    return [Words(words), notes, facts.plan_rows(verdict)]


def _provenance(verdict: Verdict) -> list[Block]:
    config = facts.config_text(verdict)
    return [facts.provenance_rows(verdict), *([Fold("Every option", [Code(config)])] if config else [])]
