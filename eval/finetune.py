"""Fine-tunes a pre-trained backbone on the labels, with layer-wise learning-rate decay.

The same code as recipes/supervised.py, so that the difference is the pre-training alone. The classifier that
eval/predict.py applies is left in the run. Larger images or finer patches than the backbone was trained with:
--model.img_size 384, --model.patch_size 8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssl_vit.configs.protocols import PROTOCOLS
from ssl_vit.methods.supervised import FinetuneRecipe
from ssl_vit.script import run_script

if TYPE_CHECKING:
    from ssl_vit.evaluation.judging import Evaluated


def main(cfg: FinetuneRecipe) -> Evaluated:
    """Backbone and labelled images in, test accuracy and RUN/classifier out.

    Args:
        cfg: What ``--help`` lists.
    """
    from ssl_vit.evaluation.judging import evaluate

    return evaluate(cfg, PROTOCOLS["finetune"])


if __name__ == "__main__":
    run_script(main, FinetuneRecipe, __doc__ or "")
