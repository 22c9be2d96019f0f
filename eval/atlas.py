"""A page that shows what a network makes of images: a map with pictures, clusters, neighbours, outliers, copies.

python eval/atlas.py --backbone RUN --data.path IMAGES --out atlas.html
IMAGES need no labels, and all splits are read (default: the images of the run). Labels become colours. The page is one
file that loads nothing and opens in any browser.
"""

from pathlib import Path

from ssl_vit.configs import AtlasRecipe
from ssl_vit.core.files import check_out
from ssl_vit.script import run_script


def check(cfg: AtlasRecipe) -> Path:
    """What is asked before anything heavy is imported.

    Args:
        cfg: What ``--help`` lists.
    """
    return check_out(cfg.out, (".html",))


def main(cfg: AtlasRecipe) -> None:
    """Backbone and images in, page out.

    Args:
        cfg: What ``--help`` lists.
    """
    path = check(cfg)
    from ssl_vit.atlas.make import make_atlas

    make_atlas(cfg, path)


if __name__ == "__main__":
    run_script(main, AtlasRecipe, __doc__ or "")
