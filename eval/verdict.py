"""Does pre-training pay on these images, by how much, and how many labels does it save?

Without options: scikit-learn's digits, planned for ten minutes. On own images:
accelerate launch eval/verdict.py --data.path POOL --eval.data.path LABELLED --verdict.budget 2h
Pre-trains what is not there yet, judges everything alike, and writes report.html, report.md and the raw results. An
interrupted verdict continues with the same command.
"""

import time

from ssl_vit.script import run_script
from ssl_vit.verdict.options import Comparison, check_verdict, verdict_recipe

BEGAN = time.monotonic()


def main(cfg: Comparison) -> None:
    """Images in, report out.

    Args:
        cfg: What ``--help`` lists.
    """
    check_verdict(cfg)
    from ssl_vit.verdict.course import give_verdict

    folder = give_verdict(cfg, BEGAN)
    if folder is None:
        return
    from ssl_vit.report.findings.records import read_verdict
    from ssl_vit.report.page.write import write_report

    report = write_report(read_verdict(folder))
    print("\n" + "\n".join([report.sentence, *report.beside]))
    print(f"\nReport: {folder / 'report.html'}   {folder / 'report.md'}")


if __name__ == "__main__":
    run_script(main, verdict_recipe(), __doc__ or "")
