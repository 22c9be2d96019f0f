"""Pictures of a trained backbone: how alike its position embeddings are (ViT, figure 7 centre)."""

from pathlib import Path

from ssl_vit.configs import FiguresRecipe, run_script


def main(cfg: FiguresRecipe) -> None:
    """Backbone in, RUN/figures/positions.png out.

    Args:
        cfg: What ``--help`` lists.
    """
    from ssl_vit.checkpoint import load_backbone
    from ssl_vit.figures.positions import save_position_similarities
    from ssl_vit.models.backbone import with_tokens

    exported = load_backbone(cfg.backbone)
    folder = Path(cfg.out).expanduser() if cfg.out else exported.folder.parent / "figures"
    picture = folder / "positions.png"
    backbone = with_tokens(exported.backbone, "the picture of positions")
    save_position_similarities(backbone, picture, kind=exported.about.get("positions", "learnable"))
    print(f"Picture: {picture}")


if __name__ == "__main__":
    run_script(main, FiguresRecipe, __doc__ or "")
