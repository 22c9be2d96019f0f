"""The labelled baseline: the same network trained from scratch on the labels alone.

Without options: scikit-learn's digits. On own images, sorted into one folder per class:
accelerate launch recipes/supervised.py --data.path FOLDER
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssl_vit.methods.supervised import SupervisedRecipe
from ssl_vit.script import run_script

if TYPE_CHECKING:
    from ssl_vit.evaluation.judging import Evaluated


def main(cfg: SupervisedRecipe) -> Evaluated:
    """Labelled images in, test accuracy, RUN/backbone and RUN/classifier out.

    Args:
        cfg: What ``--help`` lists.
    """
    from ssl_vit.evaluation.labelled_run import from_scratch

    return from_scratch(cfg)


if __name__ == "__main__":
    run_script(main, SupervisedRecipe, __doc__ or "")
