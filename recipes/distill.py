"""Teaches any network of timm's what a trained one makes of images: pooled features and feature map, without labels.

The teacher is a run or a folder that timm saved, and stays as it is. Without images: scikit-learn's 8x8 digits.
accelerate launch recipes/distill.py --teacher RUN --data.path FOLDER --model.name vit_micro
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssl_vit.methods.distill import METHOD, DistillRecipe
from ssl_vit.script import run_script

if TYPE_CHECKING:
    from ssl_vit.runs.directory import RunDir


def main(cfg: DistillRecipe) -> RunDir:
    """Images and a teacher in, RUN/backbone out.

    Args:
        cfg: What ``--help`` lists.
    """
    from ssl_vit.training.pretraining import pretrain

    return pretrain(METHOD, cfg)


if __name__ == "__main__":
    run_script(main, DistillRecipe, __doc__ or "")
