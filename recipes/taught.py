"""Trains a network on labels and on what a trained classifier says of the same images: DeiT, token labelling.

The teacher is a run of training on labels of the same classes, and stays as it is. On own images:
accelerate launch recipes/taught.py --teacher RUN --data.path FOLDER --model.name deit_micro
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssl_vit.methods.taught import TaughtRecipe
from ssl_vit.script import run_script

if TYPE_CHECKING:
    from ssl_vit.evaluation.judging import Evaluated


def main(cfg: TaughtRecipe) -> Evaluated:
    """Labelled images and a teacher in, test accuracy, RUN/backbone and RUN/classifier out.

    Args:
        cfg: What ``--help`` lists.
    """
    from ssl_vit.evaluation.labelled_run import from_scratch

    return from_scratch(cfg)


if __name__ == "__main__":
    run_script(main, TaughtRecipe, __doc__ or "")
