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
    from ssl_vit.evaluation.embedding import embed_images, in_words
    from ssl_vit.evaluation.feature_table import write_features
    from ssl_vit.exports.timm_folder import load_backbone
    from ssl_vit.training import launch

    exported, accelerator = load_backbone(cfg.backbone), launch.join("fp32")
    launch.use_cores(accelerator, exported.size)
    main_one = accelerator.is_main_process
    found = embed_images(exported, cfg.data, cfg.embed, device=accelerator.device, writes=main_one)
    if main_one:
        about = {"backbone": str(exported.folder.resolve()), "weights": exported.weights_hash, "pool": exported.pool}
        write_features(found, path, about)
        print(f"{path}: {in_words(found)}; {found.x.shape[1]:,} numbers each")


if __name__ == "__main__":
    run_script(main, EmbedRecipe, __doc__ or "")
