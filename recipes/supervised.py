"""The labelled baseline: the same network trained from scratch on the labels alone.

Without options: scikit-learn's digits. On own images, sorted into one folder per class:
accelerate launch recipes/supervised.py --data.path FOLDER
"""

from dataclasses import replace

from ssl_vit.configs import SupervisedRecipe, run_script


def main(cfg: SupervisedRecipe) -> None:
    """Labelled images in, test accuracy and RUN/backbone out.

    Args:
        cfg: What ``--help`` lists.
    """
    from ssl_vit import train
    from ssl_vit.checkpoint import export_backbone
    from ssl_vit.configs import resolve, to_dict
    from ssl_vit.data.views import measure_scale
    from ssl_vit.evaluation.finetune import train_on_labels, trained_pool
    from ssl_vit.evaluation.session import labelled_for, on_canvas, print_table, recorded_data
    from ssl_vit.models.build import build_backbone, check_shape, model_facts
    from ssl_vit.rundir import digest, open_run

    if cfg.model.name is not None:
        model_facts(resolve.full_name(cfg.model.name))
    accelerator = train.start(cfg.fit.precision, cfg.seed)
    data = labelled_for(cfg.data, cfg.eval)
    short = cfg.data.window or data.train.sizes.short_side
    shape = model_facts(resolve.default_name(cfg.model, short, cfg.preset))
    model = resolve.resolve_model(cfg.model, short, shape, cfg.preset)
    check_shape(model)
    assert model.img_size and model.pool
    size, preset = model.img_size, resolve.preset_for(cfg.preset, model.img_size)
    data = on_canvas(data, cfg.data.canvas, size, cfg.data.window)
    train.use_cores(accelerator, size)
    backbone = build_backbone(model, data.train.form.channels)
    cfg = replace(
        cfg,
        preset=preset.name,
        model=model,
        supervised=resolve.resolve_supervised(cfg.supervised, model.pool, preset.input, len(data.train)),
        augment=resolve.resolve_augment(cfg.augment, preset.input, labelled=True),
        optim=resolve.resolve_optim(cfg.optim, backbone.embed_dim, preset.input, "scratch"),
        fit=resolve.resolve_fit(cfg.fit, len(data.train), size=preset.input, labelled=True),
    )
    main_process = accelerator.is_main_process
    if main_process:
        print(f"preset          {preset.name}, {size} px in patches of {model.patch_size} px")
    run = open_run(
        "supervised", cfg, data=data.train.name, fingerprint=data.train.fingerprint, writes=main_process,
        accelerator=train.describe(accelerator),
    )  # fmt: skip
    scale = measure_scale(data.train)
    objective, metrics = train_on_labels(
        backbone, data, scale, size=size, supervised=cfg.supervised, augment=cfg.augment, optim=cfg.optim,
        fit_cfg=cfg.fit, cache=cfg.data.cache, workers=cfg.data.workers, run=run, accelerator=accelerator,
        seed=cfg.seed,
    )  # fmt: skip
    if not main_process:
        return
    recorded = {"objective": "supervised", "positions": model.positions, "seed": cfg.seed}
    export_backbone(
        objective.exported(),
        run.backbone,
        scale,
        trained_pool(cfg.supervised),
        recorded | recorded_data(cfg.data, cfg.eval.data),
    )
    protocol = {
        "config": {k: to_dict(getattr(cfg, k)) for k in ("model", "supervised", "augment", "optim", "fit", "eval")}
    }
    row = {"method": "from scratch", "labels": len(data.train), **metrics}
    result = {
        "method": "supervised", "rows": [row], "protocol": protocol, "protocol_hash": digest(protocol),
        "labels_used": len(data.train), "seed": cfg.seed, "selection": "none: fixed options, last step",
        "data": {"name": data.test.name, "train": data.train.fingerprint, "test": data.test.fingerprint,
                 "split": data.split},
    }  # fmt: skip
    columns = {"method": "method", "labels": "labels", "top1": "top-1 %", "top5": "top-5 %", "balanced": "balanced %"}
    print_table(f"{data.test.name}: labelled baseline, {len(data.test):,} test images", [row], columns)
    print(f"Result: {run.write_result('supervised', result)}   Backbone: {run.backbone}")


if __name__ == "__main__":
    run_script(main, SupervisedRecipe, __doc__ or "")
