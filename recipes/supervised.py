"""The labelled baseline: the same network trained from scratch on the labels alone.

Without options: scikit-learn's digits. On own images, sorted into one folder per class:
accelerate launch recipes/supervised.py --data.path FOLDER
"""

from dataclasses import replace

from ssl_vit.configs import SupervisedRecipe, run_script


def main(cfg: SupervisedRecipe) -> None:
    """Labelled images in, test accuracy, RUN/backbone and RUN/classifier out.

    Args:
        cfg: What ``--help`` lists.
    """
    from ssl_vit import train
    from ssl_vit.checkpoint import export_backbone
    from ssl_vit.classifier import export_classifier
    from ssl_vit.configs import resolve, to_dict
    from ssl_vit.data.views import measure_scale
    from ssl_vit.evaluation.finetune import labelling_of, shown_columns, train_on_labels, trained_pool
    from ssl_vit.evaluation.session import labelled_for, on_canvas, print_table, recorded_data
    from ssl_vit.models.build import build_backbone, check_shape, model_facts
    from ssl_vit.rundir import digest, open_run

    if cfg.model.name is not None:
        model_facts(cfg.model.name)
    accelerator = train.start(cfg.fit.precision, cfg.seed)
    data = labelled_for(cfg.data, cfg.eval)
    short = data.train.sizes.short_side
    model = resolve.resolve_model(cfg.model, short, model_facts(resolve.default_name(cfg.model, short)))
    check_shape(model)
    assert model.img_size and model.pool
    size = model.img_size
    data = on_canvas(data, cfg.data.canvas, size)
    train.use_cores(accelerator, size)
    backbone = build_backbone(model, data.train.form.channels)
    cfg = replace(
        cfg,
        model=model,
        supervised=resolve.resolve_supervised(cfg.supervised, model.pool, size, len(data.train), data.train.kind),
        augment=resolve.resolve_augment(cfg.augment, size, labelled=True),
        optim=resolve.resolve_optim(cfg.optim, backbone.embed_dim, size, "scratch"),
        fit=resolve.resolve_fit(cfg.fit, len(data.train), size=size, labelled=True),
    )
    main_process = accelerator.is_main_process
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
    recorded |= recorded_data(cfg.data, cfg.eval.data)
    export_backbone(objective.exported(), run.backbone, scale, trained_pool(cfg.supervised), recorded)
    net, labelling = objective.classifier(), labelling_of(data.train)
    written = export_classifier(net, run.classifier, scale, labelling, recorded)
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
    title = f"{data.test.name}: labelled baseline, {len(data.test):,} test images"
    print_table(title, [row], shown_columns(data.test))
    print(f"Result: {run.write_result('supervised', result)}   Backbone: {run.backbone}")
    print(f"Classifier: {run.classifier}" if written else "A head with a hidden layer is not exported for timm.")


if __name__ == "__main__":
    run_script(main, SupervisedRecipe, __doc__ or "")
