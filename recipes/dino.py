"""Pre-trains a Vision Transformer without labels by self-distillation (DINO, Caron et al. 2021).

Without options: scikit-learn's 8x8 digits, some minutes on two CPU cores. On own images:
accelerate launch recipes/dino.py --data.path FOLDER
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssl_vit.methods.dino import METHOD, DINORecipe
from ssl_vit.script import run_script

if TYPE_CHECKING:
    from ssl_vit.runs.directory import RunDir


def main(cfg: DINORecipe) -> RunDir:
    """Images in, RUN/backbone out: the teacher's.

    Args:
        cfg: What ``--help`` lists.

    Returns:
        The run's directory.
    """
    from ssl_vit.training.pretraining import pretrain

    return pretrain(METHOD, cfg)


if __name__ == "__main__":
    run_script(main, DINORecipe, __doc__ or "")
