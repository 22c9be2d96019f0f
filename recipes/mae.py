"""Pre-trains a Vision Transformer without labels as a masked autoencoder (He et al. 2022).

Without options: scikit-learn's 8x8 digits, about a minute on two CPU cores. On own images:
accelerate launch recipes/mae.py --data.path FOLDER
"""

from dataclasses import replace

from ssl_vit.configs import MAERecipe, run_script


def main(cfg: MAERecipe) -> None:
    """Images in, RUN/backbone out.

    Args:
        cfg: What ``--help`` lists.
    """
    import torch

    from ssl_vit.configs import resolve
    from ssl_vit.core.masking import kept_patches
    from ssl_vit.models.backbone import with_tokens
    from ssl_vit.models.build import build_backbone
    from ssl_vit.objectives.mae import MAE, mae_view
    from ssl_vit.training import launch, loop, pretraining
    from ssl_vit.training.health import Health

    start = pretraining.begin(cfg, tokens=True)
    accelerator, pool, model, preset = start.accelerator, start.pool, start.model, start.preset
    assert model.img_size and model.patch_size and model.width
    size, patches = model.img_size, (model.img_size // model.patch_size) ** 2
    mae = resolve.resolve_mae(cfg.mae, model.width, preset.input)
    assert mae.mask_ratio is not None
    kept = kept_patches(patches, mae.mask_ratio)
    cfg = replace(
        cfg,
        preset=preset.name,
        model=model,
        mae=mae,
        optim=resolve.resolve_optim(cfg.optim, model.width, preset.input, "mae"),
        augment=resolve.resolve_augment(cfg.augment, preset.input, labelled=False),
        fit=resolve.resolve_fit(cfg.fit, len(pool), size=preset.input, labelled=False),
    )
    fixed = model.positions == "sincos"
    backbone = with_tokens(build_backbone(model, pool.form.channels), "MAE")
    objective = MAE(backbone, cfg.mae, freeze_positions=fixed)
    loader, scale = pretraining.load(cfg, start)
    run = pretraining.open_run_for("mae", cfg, start)
    dtype = launch.DTYPES.get(cfg.fit.precision, torch.float32)
    view = mae_view(scale, cfg.augment, size=size, patches=patches, kept=kept, dtype=dtype)
    tokens = (
        f"{start.note}; preset {preset.name}, {size} px = {patches} patches of {model.patch_size} px, {kept} visible"
    )
    launch.summarise(objective, loader, cfg.fit, cfg.optim, tokens, accelerator)
    assert model.pool
    loop.fit(
        objective, loader, view, fit=cfg.fit, optim=cfg.optim, run=run, accelerator=accelerator, seed=cfg.seed,
        health=Health(loader, scale, model.pool),
    )  # fmt: skip
    if not accelerator.is_main_process:
        return
    from ssl_vit.figures.reconstructions import save_reconstructions  # so late because plotting takes time to import

    pretraining.export("MAE", objective, cfg, start, scale, run)
    picture = run.figures / "reconstructions.png"
    save_reconstructions(objective, loader.images, scale, picture, size=size, mask_ratio=mae.mask_ratio, seed=cfg.seed)
    print(pretraining.what_next(cfg, start, run, picture))


if __name__ == "__main__":
    run_script(main, MAERecipe, __doc__ or "")
