"""What should I do with these images: what to use with how many labels, and does pre-training pay?

Without options: scikit-learn's digits, planned for eight minutes. On own images:
accelerate launch eval/verdict.py --data.path POOL --eval.data.path LABELLED --verdict.budget 2h
Pre-trains what is not there yet, judges everything alike, and writes report.html, report.md and the raw results. An
interrupted verdict continues with the same command.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ssl_vit.script import run_script
from ssl_vit.verdict.options import Comparison, check_verdict, verdict_recipe

if TYPE_CHECKING:
    from ssl_vit.report.page.blocks import Page

BEGAN = time.monotonic()
recipe, check = verdict_recipe, check_verdict  # what is asked before processes are started


def main(cfg: Comparison) -> tuple[Path, Page] | None:
    """Images in, report out.

    Args:
        cfg: What ``--help`` lists.

    Returns:
        Its folder and its report; None where only the plan was asked for, and on processes other than the main one.
    """
    check(cfg)
    from ssl_vit.verdict.course import give_verdict

    folder = give_verdict(cfg, BEGAN)
    if folder is None:
        return None
    from ssl_vit.report.page.render import terminal
    from ssl_vit.report.page.write import open_numbers, write_report

    report = write_report(open_numbers([folder]))
    print("\n" + terminal(report))
    print(f"\nReport: {folder / 'report.html'}   {folder / 'report.md'}")
    return folder, report


if __name__ == "__main__":
    run_script(main, recipe(), __doc__ or "")
