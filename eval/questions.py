"""Six questions about Vision Transformers, answered on these images in figures with intervals.

Without options: scikit-learn's digits, planned for twelve minutes. On own images:
python eval/questions.py --data.path IMAGES --questions.budget 2h
Trains what is not there yet, each network once for all questions, and writes questions.html, questions.md, figures and
measured.json. An interrupted command continues when it is repeated; one that is finished draws its page again.
"""

from __future__ import annotations

import time
from pathlib import Path

from ssl_vit.questions.options import Questions, check_questions
from ssl_vit.script import run_script

BEGAN = time.monotonic()
check = check_questions  # what is asked before anything heavy is imported


def main(cfg: Questions) -> Path | None:
    """Images in, answers out.

    Args:
        cfg: What ``--help`` lists.

    Returns:
        The folder of the page; None where only the plan was asked for.
    """
    check(cfg)
    from ssl_vit.questions.course import answer

    folder = answer(cfg, BEGAN)
    if folder is None:
        return None
    from ssl_vit.questions.page import write_page

    page = write_page(folder)
    print(f"\n{page.sentence}\nPage: {folder / 'questions.html'}   {folder / 'questions.md'}")
    return folder


if __name__ == "__main__":
    run_script(main, Questions, __doc__ or "")
