"""Judges one backbone on several labelled sets, one protocol each, with means over groups of sets.

ssl-vit transfer RUN folder_of_sets, ssl-vit transfer RUN cifar10,pets, or ssl-vit transfer RUN suite.yaml, which says
protocol, group, metric and columns of each set. A set that fails is told, and the others go on. RUN/results/transfer
gets the table (SUITE-DIGEST.md and .json) and every set's result, which is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssl_vit.configs import TransferRecipe
from ssl_vit.evaluation.transfer.suite import Suite, read_suite
from ssl_vit.script import run_script

if TYPE_CHECKING:
    from ssl_vit.evaluation.transfer.table import Transfer


def check(cfg: TransferRecipe) -> Suite:
    """What is asked before processes are started: every name, file and option of the suite.

    Args:
        cfg: What ``--help`` lists.
    """
    return read_suite(cfg)


def main(cfg: TransferRecipe) -> Transfer | None:
    """Backbone and labelled sets in; table and RUN/results/transfer out.

    Args:
        cfg: What ``--help`` lists.
    """
    suite = check(cfg)
    from ssl_vit.evaluation.transfer.running import judge_suite

    return judge_suite(cfg, suite)


if __name__ == "__main__":
    run_script(main, TransferRecipe, __doc__ or "")
