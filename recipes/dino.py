"""Pre-trains a Vision Transformer without labels by self-distillation (DINO, Caron et al. 2021).

Without options: scikit-learn's 8x8 digits, some minutes on two CPU cores. On own images:
accelerate launch recipes/dino.py --data.path FOLDER
"""

from dataclasses import replace

from ssl_vit.configs import DINORecipe, run_script


def main(cfg: DINORecipe) -> None:
    """Images in, RUN/backbone out: the teacher's.

    Args:
        cfg: What ``--help`` lists.
    """
    import torch

    from ssl_vit.configs import resolve_dino
    from ssl_vit.data.sources.opening import known_classes
    from ssl_vit.models.batchnorm import takes_batch_statistics
    from ssl_vit.models.build import build_backbone, check_sizes, timm_args
    from ssl_vit.objectives.dino import DINO
    from ssl_vit.training import launch, loop, pretraining
    from ssl_vit.training.health import Health
    from ssl_vit.views.crop_colours import notice
    from ssl_vit.views.multicrop import multicrop_view

    start = pretraining.begin(cfg, positions="learnable")
    accelerator, pool, model, preset = start.accelerator, start.pool, start.model, start.preset
    assert model.name and model.img_size and model.pool
    place, plain = model.patch_size or start.shape.patch_size, start.shape.plain
    crops = resolve_dino.resolve_crops(cfg.crops, preset, size=model.img_size, patch=place, plain=plain)
    if crops.local_crops:
        assert crops.local_size
        check_sizes(model.name, timm_args(model, pool.form.channels), (model.img_size, crops.local_size))
    fit = resolve_dino.resolve_fit(cfg.fit, len(pool), preset)
    cfg = replace(
        cfg,
        preset=preset.name,
        model=model,
        dino=resolve_dino.resolve_dino(
            cfg.dino, preset, images=len(pool), width=model.width or start.shape.width, plain=plain
        ),
        crops=crops,
        optim=resolve_dino.resolve_optim(cfg.optim, preset),
        fit=fit,
    )
    backbone = build_backbone(model, pool.form.channels)
    taken = takes_batch_statistics(backbone) or cfg.dino.centring == "sinkhorn"
    cfg = replace(cfg, fit=launch.with_statistics(cfg.fit, accelerator.num_processes, taken))
    loader, scale = pretraining.load(cfg, start)
    objective = DINO(
        backbone, cfg.dino, pool=model.pool, batch_size=loader.batch_size,
        freeze_positions=plain and model.positions == "sincos",
    )  # fmt: skip
    run = pretraining.open_run_for("dino", cfg, start)
    assert cfg.dino.drop_path is not None
    dtype = launch.DTYPES.get(cfg.fit.precision, torch.float32)
    view = multicrop_view(
        scale, cfg.crops, size=model.img_size, depth=backbone.depth, drop_path=cfg.dino.drop_path, dtype=dtype
    )
    if accelerator.is_main_process:
        classes = None if cfg.data.stream else known_classes(cfg.data, cfg.eval.data)
        _warn(notice(*pool.form), cfg.dino.out_dim, classes)
    launch.summarise(objective, loader, cfg.fit, cfg.optim, _tokens(cfg, start.note), accelerator)
    if accelerator.is_main_process:
        print(objective.describe(launch.count_steps(cfg.fit, loader)), flush=True)
    assert model.pool
    loop.fit(
        objective, loader, view, fit=cfg.fit, optim=cfg.optim, run=run, accelerator=accelerator, seed=cfg.seed,
        health=Health(loader, scale, model.pool),
    )  # fmt: skip
    if accelerator.is_main_process:
        name = "DINO" if cfg.dino.export == "teacher" else "DINO, student"
        pretraining.export(name, objective, cfg, start, scale, run)
        print(pretraining.what_next(cfg, start, run, None))


def _warn(left_out: str, outputs: int | None, classes: int | None) -> None:
    """Says what is left out of the crops' colours, and that outputs are fewer than classes where both are known."""
    from ssl_vit.core.notices import say_once

    if left_out:
        say_once(f"note: {left_out}")
    if outputs is not None and classes is not None and outputs < classes:
        say_once(
            f"warning: --dino.out_dim {outputs} is smaller than the {classes} classes of the images; outputs should be "
            "many times as many, or classes have to share them"
        )


def _tokens(cfg: DINORecipe, note: str) -> str:
    """What the network sees of an image, in words."""
    size, patch, crops = cfg.model.img_size, cfg.model.patch_size, cfg.crops
    assert size
    patches = f" = {(size // patch) ** 2} patches of {patch} px" if patch else ""
    local = f", {crops.local_crops} of {crops.local_size} px" if crops.local_crops else ""
    return f"{note}; preset {cfg.preset}, 2 crops of {size} px{patches}{local}"


if __name__ == "__main__":
    run_script(main, DINORecipe, __doc__ or "")
