"""From a verdict to what its report says, in its order."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ssl_vit.configs.metrics import shown
from ssl_vit.methods.starts import pretrained, starts
from ssl_vit.report.cells import (
    Table,
    count,
    heading,
    percent,
    seconds,
    table,
)
from ssl_vit.report.charts import plots
from ssl_vit.report.findings import classes, facts, tables
from ssl_vit.report.findings.conclusions import Findings, find
from ssl_vit.report.findings.contract import broken, check, counted
from ssl_vit.report.findings.leaking import bound_sentence
from ssl_vit.report.findings.limits import limits
from ssl_vit.report.findings.records import Verdict
from ssl_vit.report.look import LONGER, looks
from ssl_vit.report.page.blocks import (
    Block,
    Bullets,
    Checks,
    Code,
    Fold,
    Gallery,
    Grid,
    Page,
    Picture,
    Plot,
    Section,
    Words,
)
from ssl_vit.report.page.guard import leak_blocks, leak_sentences

_PNG = b"\x89PNG\r\n\x1a\n"


def build(verdict: Verdict) -> Page:
    """All of a report.

    Args:
        verdict: All numbers.
    """
    items = check(verdict)
    findings = find(verdict, broken(items), {start: broken(items, start) for start in pretrained()})
    items = (*items, *counted(verdict, findings.primary))
    makers: list[tuple[str, str, Callable[[Verdict, Findings], list[Block]]]] = [
        ("curves", "Label efficiency", _curves),
        ("differences", "Differences to the baseline", _differences),
        ("saved", "Labels saved", _saved),
        ("numbers", "All methods beside each other", _numbers),
        ("contract", "Fair-baseline contract", lambda *_: [Checks(items)]),
        ("leaks", "Leak guard", lambda v, _: leak_blocks(v.leaks)),
        ("cost", "Cost", _cost),
        ("classes", "Best and worst classes", _classes),
        ("confusion", "What is taken for what", _confusion),
        ("pictures", "Pictures", _pictures),
        ("losses", "Pre-training losses", _losses),
        ("tuning", "Tuning", _tuning),
        ("data", "Data", _data),
        ("plan", "Plan and budget", _plan),
        ("provenance", "Provenance", _provenance),
        ("reproduce", "Reproduce a number", _reproduce),
    ]
    sections = [Section(key, title, tuple(make(verdict, findings))) for key, title, make in makers]
    first, *others = re.split(r"(?<=\.) (?=[A-Z])", findings.headline)
    return Page(
        title=str(verdict.about.get("title") or "runs"),
        sentence=first,
        beside=(*others, *limits(verdict, [one.start for one in findings.primary])),
        refused=not findings.judged,
        notes=_notes(verdict, findings),
        numbers=tuple(_strip(verdict, findings)),
        sections=tuple(section for section in sections if section.blocks),
        looks=looks(verdict.starts) | {LONGER.css: LONGER},
    )


def _notes(verdict: Verdict, findings: Findings) -> tuple[Words, ...]:
    """What must be known to read the sentence; refusals and declarations stand in the sentence itself."""
    leaks = leak_sentences(verdict)
    if not leaks:
        return ()
    bound = bound_sentence(verdict, findings.primary, findings.judged)
    words = " ".join([*leaks, "Scores on these images mean less.", *([bound] if bound else [])])
    return (Words(words, warning=True),)


def _strip(verdict: Verdict, findings: Findings) -> list[tuple[str, str]]:
    metric, labels = verdict.about["metric"], max(verdict.about["labels"])
    data, found = verdict.told("data"), list[tuple[str, str]]()
    if data.get("pool") is not None:
        found.append((count(data["pool"]), "images to pre-train on"))
    if data.get("test") is not None:
        found.append((count(data["test"]), "test images"))
    found += _averages(verdict, findings)
    if not findings.primary:
        for one in reversed(classes.compared(verdict)):
            value = tables.interval_of(one.scores, verdict.clusters).estimate
            found.append((shown(metric, value), f"{heading(metric)}, {one.name}, {labels:,} labels"))
    taken = verdict.told("plan").get("taken")
    if taken is not None:
        found.append((seconds(taken), "for all of it"))
    return found


def _averages(verdict: Verdict, findings: Findings) -> list[tuple[str, str]]:
    """What the differences of the sentences at the top are between, over the same labels: the baseline first."""
    metric, found = verdict.about["metric"], dict[str, str]()
    for one in findings.primary:
        counts = one.over
        last = f"{max(counts):,} labels"
        first = f"on average over {min(counts):,} {'and' if len(counts) == 2 else 'to'} " if len(counts) > 1 else ""
        span = f"{first}{last}"
        words, other = (
            f"{heading(metric)}, {tables.method_name(verdict, start, use)}, {span}"
            for start, use in ((one.start, one.use), (one.against_start, one.against_use))
        )
        level = shown(metric, one.against_value)
        if found.setdefault(other, level) == level:  # else it is over other draws
            found[words] = shown(metric, one.value)
    return [(value, words) for words, value in found.items()]


def _plot(chart: Any, **options: Any) -> list[Block]:
    return [] if chart is None else [Plot(chart, **options)]


def _grid(found: Table, head: str = "") -> list[Block]:
    return [Grid(found, head)] if found else []


def _curves(verdict: Verdict, findings: Findings) -> list[Block]:
    chart = plots.curves(verdict)
    words = (
        "Lines are means over draws of labels; bands are 95 % intervals over pre-training seeds, draws and test "
        "images. From scratch, which is what pre-training is compared with, stands in every panel."
    )
    if chart is None:
        return []
    told = [Bullets(findings.more)] if findings.more else []
    return [*_plot(chart, legend=tuple(plots.legend(verdict))), Words(words, note=True), *told]


def _differences(verdict: Verdict, findings: Findings) -> list[Block]:
    chart = plots.differences(verdict, findings)
    if chart is None:
        return [Words("No method and the labelled baseline have draws of labels in common.")]
    note = (
        "Differences are turned so that positive is better. Filled marks are significant after Holm's adjustment, "
        "hollow ones are not."
    )
    whole = tables.difference_rows(verdict, findings.primary)
    each = tables.differences_by_labels(verdict, findings.table)
    beside = tables.difference_rows(verdict, findings.secondary)
    return [
        *_grid(whole, "What the verdict stands on"),
        *_grid(tables.difference_rows(verdict, findings.observed), "Observed only: the other numbers of labels"),
        *_plot(chart, legend=tuple(plots.differing(verdict, findings))),
        Words(note, note=True),
        *_grid(each, "At every number of labels"),
        *_grid(beside, "Probes against untrained features, and the CNN"),
    ]


def _saved(verdict: Verdict, findings: Findings) -> list[Block]:
    return [*_plot(plots.saved(verdict, findings)), *_grid(tables.savings_rows(verdict, findings.savings))]


def _numbers(verdict: Verdict, _: Findings) -> list[Block]:
    blocks = _grid(tables.all_numbers(verdict))
    left = verdict.told("left_out")
    return [*blocks, *(Words(_left_out(start, str(why))) for start, why in left.items())]


def _left_out(start: str, why: str) -> str:
    """Names of exceptions are for those who can mend the program."""
    why = re.sub(r" \(\w*(?:Error|Exception)\)", "", why).rstrip(". ")
    return f"{known.subject if (known := starts().get(start)) else f'{start} was'} left out: {why}."


def _cost(verdict: Verdict, findings: Findings) -> list[Block]:
    return _grid(tables.cost_rows(verdict, findings.primary))


def _classes(verdict: Verdict, _: Findings) -> list[Block]:
    return _grid(classes.class_rows(verdict))


def _confusion(verdict: Verdict, _: Findings) -> list[Block]:
    chart = plots.confusion_chart(verdict)
    note = "Rows are true classes: " + plots.confusion_words(len(verdict.about["classes"]))
    if chart is not None:
        return [*_plot(chart), Words(note, note=True)]
    rows: list[list[Any]] = [[t, p, count(n), percent(share)] for t, p, n, share in classes.most_confused(verdict)]
    return _grid(table(("true class", "taken for", "images, all draws", "of the class"), rows, 2))


def _pictures(verdict: Verdict, _: Findings) -> list[Block]:
    found = [] if verdict.from_runs else _read_pictures(verdict.folder / "pictures", verdict)
    drawn = [one for one in found if one.png]
    told = tuple(
        f"{one.title}: {one.caption.removeprefix('No picture: ')}" for one in found if one.caption and not one.png
    )
    return [*([Gallery(tuple(drawn))] if drawn else []), *([Bullets(told)] if told else [])]


def _read_pictures(folder: Path, verdict: Verdict) -> list[Picture]:
    """Those that were drawn, and without content those of which there is nothing to draw but words."""
    try:
        told = json.loads((folder / "pictures.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    found: list[Picture] = []
    for one in told:
        path = folder / Path(str(one["file"])).name if one["file"] else None  # nothing outside the folder
        content = path.read_bytes() if path and path.is_file() else b""
        if path and not content.startswith(_PNG):
            continue
        start = one.get("start")
        title = f"{one['title']} ({verdict.name(start)})" if start else str(one["title"])
        found.append(Picture(title, str(one.get("caption") or ""), content))
    return found


def _losses(verdict: Verdict, _: Findings) -> list[Block]:
    return _plot(plots.loss_curves(verdict))


def _tuning(verdict: Verdict, _: Findings) -> list[Block]:
    told = verdict.told("tuning")
    if not told:
        return []
    space = Words(f"{told.get('trials', 'Some')} trials for every method: {told.get('space', 'options not recorded')}.")
    trials = [block for use, words in tables.USES.items() for block in _grid(facts.tuning_rows(verdict, use), words)]
    return [space, Fold("Every trial", tuple(trials))] if trials else [space]


def _data(verdict: Verdict, _: Findings) -> list[Block]:
    return [*_grid(facts.data_rows(verdict)), *_plot(plots.class_balance(verdict))]


def _plan(verdict: Verdict, _: Findings) -> list[Block]:
    plan = verdict.told("plan")
    if not plan:
        return []
    budget, expected, taken = (plan.get(key) for key in ("budget", "expected", "taken"))
    words = f"Expected {seconds(expected)}, taken {seconds(taken)}"
    words += f", budget {seconds(budget)}" if budget else ", no budget given"
    sessions = plan.get("sessions") or 1
    words += f"; {plan.get('jobs', 1)} at a time" + (f"; {sessions} sessions" if sessions > 1 else "") + "."
    notes = tuple(facts.sentence(str(note)) for note in plan.get("notes", []))
    return [Words(words), *([Bullets(notes)] if notes else []), *_grid(facts.plan_rows(verdict))]


def _provenance(verdict: Verdict, _: Findings) -> list[Block]:
    config = facts.config_text(verdict)
    folds = (Fold("Every option", (Code(config),)),) if config else ()
    return [*_grid(facts.provenance_rows(verdict)), *folds]


def _reproduce(verdict: Verdict, _: Findings) -> list[Block]:
    found = facts.commands(verdict)
    return [Fold(f"{len(found.rows):,} commands", (*_grid(found),))] if found else []
