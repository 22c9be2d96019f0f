"""Pre-trains a transformer without labels by predicting visual words of hidden patches (BEiT, Bao et al. 2022).

Words are clusters of patches of the images themselves. Without options: scikit-learn's 8x8 digits. On own images:
accelerate launch recipes/beit.py --data.path FOLDER
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssl_vit.methods.beit import METHOD, BEiTRecipe
from ssl_vit.script import run_script

if TYPE_CHECKING:
    from ssl_vit.runs.directory import RunDir


def main(cfg: BEiTRecipe) -> RunDir:
    """Images in, RUN/backbone and RUN/words.safetensors out.

    Args:
        cfg: What ``--help`` lists.
    """
    from ssl_vit.training.pretraining import pretrain

    return pretrain(METHOD, cfg)


if __name__ == "__main__":
    run_script(main, BEiTRecipe, __doc__ or "")
