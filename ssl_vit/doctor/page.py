"""The examination as one page, in the look of the report."""

from __future__ import annotations

from ssl_vit.configs.doctor import DoctorRecipe
from ssl_vit.doctor.findings import Findings
from ssl_vit.doctor.following import Followed
from ssl_vit.doctor.headers import Headers, in_bytes
from ssl_vit.report.cells import table
from ssl_vit.report.page.blocks import Block, Page, Section, Words
from ssl_vit.report.page.render import html


def page(cfg: DoctorRecipe, found: list[Findings], headers: Headers, run: Followed | None) -> str:
    """The page's text.

    Args:
        cfg: As given.
        found: All parts, in their order.
        headers: Of all images.
        run: What would be trained; None where training stops.
    """
    warned = [text for part in found for text in part.warnings]
    time = next((text for part in found for name, text in part.lines if name == "time"), "")
    return html(
        Page(
            title=cfg.data.path, sentence=_sentence(headers, run, len(warned)), beside=(), refused=run is None,
            notes=(), numbers=_numbers(headers, run, time),
            sections=tuple(_section(part) for part in found), question="What is in these images?",
        )
    )  # fmt: skip


def _sentence(headers: Headers, run: Followed | None, warned: int) -> str:
    images = f"{len(headers.looked):,} images"
    if run is None:
        return f"{images}, on which training stops: the reason is below."
    things = {0: "nothing to warn of", 1: "one thing to look at"}.get(warned, f"{warned} things to look at")
    return f"{images} for {run.method.title}, with {things}."


def _numbers(headers: Headers, run: Followed | None, time: str) -> tuple[tuple[str, str], ...]:
    found = [
        (f"{len(headers.looked):,}", "images"),
        (in_bytes(sum(one.size for one in headers.looked)), "in files"),
        (f"{len(headers.unreadable()):,}", "unreadable"),
        (f"{sum(len(group) - 1 for group in headers.copies()):,}", "exact copies"),
    ]
    if run is not None:
        model = run.cfg.model
        found += [(f"{model.img_size} px", "input of the network"), (f"{run.cfg.fit.epochs:g}", "epochs")]
    if time:
        found.append((time.removeprefix("about ").partition(" on ")[0], "of training, as forecast"))
    return tuple(found)


def _section(part: Findings) -> Section:
    blocks: list[Block] = [Words(text, warning=True) for text in part.warnings]
    if part.lines:
        blocks.append(table(("", ""), part.lines, 2))
    title = part.title[0].upper() + part.title[1:]
    return Section(part.title.replace(" ", "-"), title, (*blocks, *part.shown))
