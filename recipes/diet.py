"""Pre-trains any network of timm's without labels by telling every image from all others (DIET, Ibrahim et al. 2024).

Without options: scikit-learn's 8x8 digits, some minutes on two CPU cores. On own images:
accelerate launch recipes/diet.py --data.path FOLDER
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssl_vit.methods.diet import METHOD, DIETRecipe
from ssl_vit.script import run_script

if TYPE_CHECKING:
    from ssl_vit.runs.directory import RunDir


def main(cfg: DIETRecipe) -> RunDir:
    """Images in, RUN/backbone out.

    Args:
        cfg: What ``--help`` lists.
    """
    from ssl_vit.training.pretraining import pretrain

    return pretrain(METHOD, cfg)


if __name__ == "__main__":
    run_script(main, DIETRecipe, __doc__ or "")
