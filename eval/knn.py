"""Weighted k-nearest neighbours on frozen features, exactly as DINO evaluates, beside random weights and raw pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssl_vit.configs import KNNRecipe
from ssl_vit.configs.protocols import PROTOCOLS
from ssl_vit.script import run_script

if TYPE_CHECKING:
    from ssl_vit.evaluation.judging import Evaluated


def main(cfg: KNNRecipe) -> Evaluated:
    """Backbone in, table and RUN/results/knn.json out.

    Args:
        cfg: What ``--help`` lists.
    """
    from ssl_vit.evaluation.judging import evaluate

    return evaluate(cfg, PROTOCOLS["knn"])


if __name__ == "__main__":
    run_script(main, KNNRecipe, __doc__ or "")
