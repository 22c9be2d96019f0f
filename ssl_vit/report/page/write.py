"""Writes report.html, report.md and figures/ of a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ssl_vit.core.errors import UserError
from ssl_vit.core.files import refuse_address, write_atomically, write_bytes_atomically
from ssl_vit.report.charts.canvas import Chart
from ssl_vit.report.findings.integrity import sound
from ssl_vit.report.findings.records import Verdict, read_verdict
from ssl_vit.report.findings.runs import read_runs
from ssl_vit.report.page.blocks import Page
from ssl_vit.report.page.content import build
from ssl_vit.report.page.render import html, markdown


def open_numbers(given: Sequence[str | Path]) -> Verdict:
    """One verdict's folder, or any number of run directories.

    Raises:
        UserError: For several verdicts, or a verdict beside runs, for one whose files contradict each other, and as
            ``read_verdict`` and ``read_runs`` do.
    """
    verdicts = [one for one in given if (Path(one).expanduser() / "verdict.json").exists()]
    unfinished = [one for one in given if (Path(one).expanduser() / "plan.json").exists() and one not in verdicts]
    if unfinished:
        raise UserError(f"{unfinished[0]} is a verdict that is not finished; repeat its command, which continues")
    if not verdicts:
        return read_runs(given)
    if len(given) > 1:
        raise UserError(
            f"{verdicts[0]} is a verdict, with draws and tuning of its own, and cannot be mixed with anything else; "
            "give one verdict, or run directories"
        )
    return sound(read_verdict(given[0]))


def write_report(verdict: Verdict, out: str | Path | None = None) -> Page:
    """Writes a verdict's report into a folder, its own where none is named."""
    if out is None and verdict.from_runs:
        raise UserError("a report of run directories needs a folder of its own: name one with --out FOLDER")
    refuse_address("--out", str(out or ""))
    folder = verdict.folder if out is None else Path(out).expanduser()
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {folder} is a file; name a folder")
    if out is not None and folder.suffix in (".html", ".md"):
        raise UserError(f"--out {folder}: a report is a folder with report.html and more in it; name a folder")
    there = [name for name in ("report.md", "report.html") if (folder / name).exists()]
    if out is not None and len(there) == 1:  # a report has both
        raise UserError(f"--out {folder} has a {there[0]} that is none of these reports; name another folder")
    report = build(verdict)
    try:
        for chart in (block for section in report.sections for block in section.blocks if isinstance(block, Chart)):
            write_bytes_atomically(folder / "figures" / f"{chart.name}.png", chart.png)
        write_atomically(folder / "report.md", markdown(report))
        write_atomically(folder / "report.html", html(report))
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}; name another folder with --out") from error
    return report
