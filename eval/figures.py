"""Pictures of a trained backbone: positions (ViT, figure 7), attention of the class token, features as colours.

python eval/figures.py --backbone RUN --images IMAGES
RUN is any run that wrote a backbone; IMAGES need no labels (default: those of the run).
"""

from pathlib import Path

from ssl_vit.configs import FiguresRecipe
from ssl_vit.script import run_script


def main(cfg: FiguresRecipe) -> None:
    """Backbone and images in, RUN/figures/positions.png, attention.png and pca.png out.

    Args:
        cfg: What ``--help`` lists.
    """
    from ssl_vit.exports.timm_folder import load_backbone
    from ssl_vit.figures.attention import save_attention
    from ssl_vit.figures.pca import save_components
    from ssl_vit.figures.positions import save_position_similarities
    from ssl_vit.figures.shown import open_shown
    from ssl_vit.models.backbone import TokenBackbone

    exported = load_backbone(cfg.backbone)
    backbone, about = exported.backbone, exported.about
    folder = Path(cfg.out).expanduser() if cfg.out else exported.folder.parent / "figures"
    shown = open_shown(exported, cfg.images, cfg.figures)
    made = [folder / "pca.png"]
    save_components(backbone, shown, made[0])
    if isinstance(backbone, TokenBackbone) and backbone.class_token:
        made.insert(0, folder / "attention.png")
        save_attention(backbone, shown, made[0])
    else:
        print("No attention.png: the backbone has no class token whose attention could be drawn.")
    if isinstance(backbone, TokenBackbone) and backbone.patch_positions() is not None:
        made.insert(0, folder / "positions.png")
        save_position_similarities(backbone, made[0], kind=about.get("positions", "learnable"))
    else:
        print("No positions.png: the backbone has no position embedding that could be drawn.")
    print("\n".join(f"Picture: {path}" for path in made))


if __name__ == "__main__":
    run_script(main, FiguresRecipe, __doc__ or "")
