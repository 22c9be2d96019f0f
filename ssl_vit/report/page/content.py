"""From a verdict to what its report says, in its order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from ssl_vit.configs.metrics import shown
from ssl_vit.methods.starts import pretrained, starts
from ssl_vit.report.cells import count, heading, percent, seconds, table
from ssl_vit.report.charts import plots
from ssl_vit.report.findings import classes, facts, tables
from ssl_vit.report.findings.comparisons import USES, interval_of
from ssl_vit.report.findings.conclusions import Findings, find, limits
from ssl_vit.report.findings.contract import broken, check, counted
from ssl_vit.report.findings.leaking import bound_sentence
from ssl_vit.report.findings.records import Verdict
from ssl_vit.report.look import LONGER, looks
from ssl_vit.report.page.blocks import Block, Bullets, Checks, Code, Fold, Gallery, Page, Picture, Section, Words
from ssl_vit.report.page.guard import leak_blocks

_PNG = b"\x89PNG\r\n\x1a\n"
_BANDS = (
    "Lines are means over draws of labels; bands are 95 % intervals over pre-training seeds, draws and test images. "
    "From scratch, which is what pre-training is compared with, stands in every panel."
)
_MARKS = (
    "Differences are turned so that positive is better. Filled marks are significant after Holm's adjustment, hollow "
    "ones are not."
)


def build(verdict: Verdict) -> Page:
    """All of a report."""
    items = check(verdict)
    findings = find(verdict, broken(items), {start: broken(items, start) for start in pretrained()})
    items = (*items, *counted(verdict, findings.primary))
    commands = facts.commands(verdict)
    sections: list[tuple[str, str, Iterable[Block | None]]] = [
        ("curves", "Label efficiency", _curves(verdict, findings)),
        ("differences", "Differences to the baseline", _differences(verdict, findings)),
        ("saved", "Labels saved",
         [plots.saved(verdict, findings), tables.savings_rows(verdict, findings.savings)]),
        ("numbers", "All methods beside each other", [tables.all_numbers(verdict), *_left_out(verdict)]),
        ("contract", "Fair-baseline contract", [Checks(items)]),
        ("leaks", "Leak guard", leak_blocks(verdict.leaks)),
        ("cost", "Cost", [tables.cost_rows(verdict, findings.primary)]),
        ("classes", "Best and worst classes", [classes.class_rows(verdict)]),
        ("confusion", "What is taken for what", _confusion(verdict)),
        ("pictures", "Pictures", _pictures(verdict)),
        ("losses", "Pre-training losses", [plots.loss_curves(verdict)]),
        ("tuning", "Tuning", _tuning(verdict)),
        ("data", "Data", [facts.data_rows(verdict), plots.class_balance(verdict)]),
        ("plan", "Plan and budget", _plan(verdict)),
        ("provenance", "Provenance", _provenance(verdict)),
        ("reproduce", "Reproduce a number",
         [Fold(f"{len(commands.rows):,} commands", [commands])] if commands else []),
    ]  # fmt: skip
    made = [Section(key, title, [block for block in blocks if block]) for key, title, blocks in sections]
    first, *others = re.split(r"(?<=\.) (?=[A-Z])", findings.headline)
    return Page(
        title=str(verdict.about.get("title") or "runs"),
        sentence=first,
        beside=(*others, *limits(verdict, [one.start for one in findings.primary])),
        refused=not findings.judged,
        sections=[section for section in made if section.blocks],
        notes=_notes(verdict, findings),
        numbers=_strip(verdict, findings),
        looks=looks(verdict.starts) | {"longer": LONGER},
    )


def _notes(verdict: Verdict, findings: Findings) -> list[Words]:
    """What must be known to read the sentence; refusals and declarations stand in the sentence itself."""
    leaks = [str(one["sentence"]) for one in verdict.leaking]
    bound = bound_sentence(verdict, findings.primary, findings.judged)
    words = [*leaks, "Scores on these images mean less.", *([bound] if bound else [])]
    return [Words(" ".join(words), warning=True)] if leaks else []


def _strip(verdict: Verdict, findings: Findings) -> list[tuple[str, str]]:
    metric, labels = verdict.about["metric"], max(verdict.about["labels"])
    data = verdict.told("data")
    told = {"pool": "images to pre-train on", "test": "test images"}
    found = [(count(data[key]), words) for key, words in told.items() if data.get(key) is not None]
    found += _averages(verdict, findings)
    if not findings.primary:
        for one in reversed(classes.compared(verdict)):
            value = interval_of(one.scores, verdict.clusters).estimate
            found.append((shown(metric, value), f"{heading(metric)}, {one.name}, {labels:,} labels"))
    taken = verdict.told("plan").get("taken")
    return found if taken is None else [*found, (seconds(taken), "for all of it")]


def _averages(verdict: Verdict, findings: Findings) -> list[tuple[str, str]]:
    """What the differences of the sentences at the top are between, over the same labels: the baseline first."""
    metric, found = verdict.about["metric"], dict[str, str]()
    for one in findings.primary:
        counts = one.over
        first = f"on average over {min(counts):,} {'and' if len(counts) == 2 else 'to'} " if len(counts) > 1 else ""
        words, other = (
            f"{heading(metric)}, {tables.method_name(verdict, start, use)}, {first}{max(counts):,} labels"
            for start, use in ((one.start, one.use), (one.against_start, one.against_use))
        )
        level = shown(metric, one.against_value)
        if found.setdefault(other, level) == level:  # else it is over other draws
            found[words] = shown(metric, one.value)
    return [(value, words) for words, value in found.items()]


def _curves(verdict: Verdict, findings: Findings) -> list[Block]:
    chart = plots.curves(verdict)
    return [chart, Words(_BANDS, note=True), Bullets(findings.more)] if chart else []


def _differences(verdict: Verdict, findings: Findings) -> list[Block]:
    chart = plots.differences(verdict, findings)
    if chart is None:
        return [Words("No method and the labelled baseline have draws of labels in common.")]
    return [
        tables.difference_rows(verdict, findings.primary, "What the verdict stands on"),
        tables.difference_rows(verdict, findings.observed, "Observed only: the other numbers of labels"),
        chart,
        Words(_MARKS, note=True),
        tables.differences_by_labels(verdict, findings.table, "At every number of labels"),
        tables.difference_rows(verdict, findings.secondary, "Probes against untrained features, and the CNN"),
    ]


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
    space = Words(f"{told.get('trials', 'Some')} trials for every method: {told.get('space', 'options not recorded')}.")
    trials = [found for use in USES if (found := facts.tuning_rows(verdict, use))]
    return [space, *([Fold("Every trial", trials)] if trials else [])]


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
