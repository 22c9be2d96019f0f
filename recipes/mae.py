"""Pre-trains a Vision Transformer without labels as a masked autoencoder (He et al. 2022).

Without options: scikit-learn's 8x8 digits, about a minute on two CPU cores. On own images:
accelerate launch recipes/mae.py --data.path FOLDER
"""

import os
from dataclasses import replace
from pathlib import Path
from shlex import quote

from ssl_vit.configs import DataConfig, LabelledDataConfig, MAERecipe, ModelConfig, run_script, to_dict


def main(cfg: MAERecipe) -> None:
    """Images in, RUN/backbone out.

    Args:
        cfg: What ``--help`` lists.
    """
    import torch

    from ssl_vit import train
    from ssl_vit.checkpoint import export_backbone
    from ssl_vit.configs import resolve
    from ssl_vit.data.loader import Loader
    from ssl_vit.data.sources import open_pool
    from ssl_vit.data.views import mae_view, measure_scale
    from ssl_vit.evaluation.session import recorded_data
    from ssl_vit.figures.reconstructions import save_reconstructions
    from ssl_vit.masking import kept_patches
    from ssl_vit.models.backbone import with_tokens
    from ssl_vit.models.build import build_backbone, check_shape, model_facts
    from ssl_vit.objectives.mae import MAE
    from ssl_vit.rundir import open_run

    if cfg.model.name is not None:
        model_facts(resolve.full_name(cfg.model.name), tokens=True)
    accelerator = train.start(cfg.fit.precision, cfg.seed)
    pool, note = open_pool(cfg.data, cfg.eval.data)
    short, named = cfg.data.window or pool.sizes.short_side, cfg.preset
    shape = model_facts(resolve.default_name(cfg.model, short, named), tokens=True)
    model = resolve.resolve_model(cfg.model, short, shape, named)
    check_shape(model)
    assert model.img_size and model.patch_size and model.width and model.pool
    size, patches = model.img_size, (model.img_size // model.patch_size) ** 2
    preset = resolve.preset_for(named, size)
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
    assert cfg.fit.batch_size is not None
    micro = train.micro_batch_size(cfg.fit, accelerator.num_processes)
    fixed = model.positions == "sincos"
    backbone = with_tokens(build_backbone(model, pool.form.channels), "MAE")
    objective = MAE(backbone, cfg.mae, freeze_positions=fixed)
    pool = pool.on_canvas(cfg.data.canvas, size, cfg.data.window)
    scale = measure_scale(pool)
    loader = Loader(
        pool, batch_size=cfg.fit.batch_size, micro_batch=micro, seed=cfg.seed, device=accelerator.device,
        cache=cfg.data.cache, workers=cfg.data.workers,
    )  # fmt: skip
    train.use_cores(accelerator, size)
    main_process, about = accelerator.is_main_process, train.describe(accelerator)
    run = open_run("mae", cfg, data=cfg.data.path, fingerprint=pool.fingerprint, writes=main_process, accelerator=about)
    dtype = train.DTYPES.get(cfg.fit.precision, torch.float32)
    view = mae_view(scale, cfg.augment, size=size, patches=patches, kept=kept, dtype=dtype)
    tokens = f"{note}; preset {preset.name}, {size} px = {patches} patches of {model.patch_size} px, {kept} visible"
    train.summarise(objective, loader, cfg.fit, cfg.optim, tokens, accelerator)
    train.fit(objective, loader, view, fit=cfg.fit, optim=cfg.optim, run=run, accelerator=accelerator, seed=cfg.seed)
    if not main_process:
        return
    recorded = {
        "objective": "MAE",
        "pool_fingerprint": pool.fingerprint,
        "positions": model.positions,
        "seed": cfg.seed,
        **recorded_data(cfg.data, cfg.eval.data),
    }
    export_backbone(objective.exported(), run.backbone, scale, model.pool, recorded)
    picture = run.figures / "reconstructions.png"
    save_reconstructions(objective, pool, scale, picture, size=size, mask_ratio=mae.mask_ratio, seed=cfg.seed)
    # Only a made or given test split, or another labelled source, can be judged on.
    judged = "" if cfg.eval.data.path or "stay out" in note else " --eval.data.path LABELLED_IMAGES"
    name = None if model.name == resolve.default_name(ModelConfig(), short, named) else model.name
    usual = resolve.resolve_model(ModelConfig(name), short, shape, named)
    if cfg.eval.data.path not in (None, cfg.data.path):  # other images would choose another network: name all of it
        name, usual = None, ModelConfig()
    again = " ".join(_baseline_options(cfg, name, named, usual))
    place = quote(str(run.backbone))
    print(
        f"\nThe pre-trained backbone is in {run.backbone}"
        f"\n  timm.create_model('local-dir:{run.backbone}', pretrained=True)"
        f"\nPicture: {picture}   Metrics: {run.path / 'metrics.jsonl'}   Options: {run.path / 'config.yaml'}\n"
        f"\nWhat it is worth on labelled images:"
        f"\n  accelerate launch {_script('eval/knn.py')} --backbone {place}{judged}"
        f"\n  accelerate launch {_script('eval/linear_probe.py')} --backbone {place}{judged}"
        f"\n  accelerate launch {_script('eval/finetune.py')} --backbone {place}{judged}"
        f"\nand the same network without pre-training:"
        f"\n  accelerate launch {_script('recipes/supervised.py')} {again}{judged}".rstrip()
    )


def _script(name: str) -> str:
    """A script's path from where the user is."""
    return quote(os.path.relpath(Path(__file__).resolve().parent.parent / name))


def _baseline_options(cfg: MAERecipe, name: str | None, named: str | None, default: ModelConfig) -> list[str]:
    """The options with which the labelled baseline uses the same images and network.

    Args:
        cfg: The resolved recipe.
        name: The model, where the baseline would choose another.
        named: As given by ``--preset``.
        default: The model that the baseline would build from these two.
    """
    groups = [("data", cfg.data, DataConfig()), ("eval.data", cfg.eval.data, LabelledDataConfig())]
    words = [
        word for option, value in (("preset", named), ("model.name", name)) if value for word in (f"--{option}", value)
    ]
    for group, given, usual in [*groups, ("model", cfg.model, default)]:
        for field, value in to_dict(given).items():
            if value is not None and value != getattr(usual, field):
                words += [f"--{group}.{field}", quote(str(value).lower() if isinstance(value, bool) else str(value))]
    return words


if __name__ == "__main__":
    run_script(main, MAERecipe, __doc__ or "")
