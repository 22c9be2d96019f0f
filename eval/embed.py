"""One vector per image as a table: where it lies, its label where it has one, and what the network makes of it.

accelerate launch eval/embed.py --backbone RUN --data.path IMAGES --out features.parquet
IMAGES need no labels, and all splits are read (default: the images of the run). --out may end in .csv or .npz, too.
"""

from pathlib import Path

from ssl_vit.configs import EmbedRecipe
from ssl_vit.core.files import check_out
from ssl_vit.script import run_script


def check(cfg: EmbedRecipe) -> Path:
    """What is asked before processes are started.

    Args:
        cfg: What ``--help`` lists.
    """
    from ssl_vit.evaluation.feature_table import ENDINGS

    return check_out(cfg.out, ENDINGS)


def main(cfg: EmbedRecipe) -> None:
    """Backbone and images in, table out.

    Args:
        cfg: What ``--help`` lists.
    """
    path = check(cfg)
    from ssl_vit.evaluation.embedding import embed_to

    embed_to(path, cfg)


if __name__ == "__main__":
    run_script(main, EmbedRecipe, __doc__ or "")
