"""Pre-trains a Vision Transformer without labels as a masked autoencoder (He et al. 2022).

Without options: scikit-learn's 8x8 digits, about a minute on two CPU cores. On own images:
accelerate launch recipes/mae.py --data.path FOLDER
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssl_vit.methods.mae import METHOD, MAERecipe
from ssl_vit.script import run_script

if TYPE_CHECKING:
    from ssl_vit.runs.directory import RunDir


def main(cfg: MAERecipe) -> RunDir:
    """Images in, RUN/backbone out.

    Args:
        cfg: What ``--help`` lists.

    Returns:
        The run's directory.
    """
    from ssl_vit.training.pretraining import pretrain

    return pretrain(METHOD, cfg)


if __name__ == "__main__":
    run_script(main, MAERecipe, __doc__ or "")
