"""The labelled baseline: the same network trained from scratch on the labels alone.

Without options: scikit-learn's digits. On own images, sorted into one folder per class:
accelerate launch recipes/supervised.py --data.path FOLDER
"""

from dataclasses import replace

from ssl_vit.methods.supervised import SupervisedRecipe
from ssl_vit.script import run_script


def main(cfg: SupervisedRecipe) -> None:
    """Labelled images in, test accuracy, RUN/backbone and RUN/classifier out.

    Args:
        cfg: What ``--help`` lists.
    """
    from ssl_vit.configs import resolve, to_dict
    from ssl_vit.data.scale import measure_scale
    from ssl_vit.evaluation.answers import save_answers
    from ssl_vit.evaluation.finetune import leave, train_on_labels, trained_row
    from ssl_vit.evaluation.metrics import chosen_metric, columns
    from ssl_vit.evaluation.printing import led_by, print_table
    from ssl_vit.evaluation.protocol import result_of
    from ssl_vit.evaluation.session import labelled_for, on_canvas, warn_unlearnable
    from ssl_vit.exports.origin import recorded_data
    from ssl_vit.methods import Facts
    from ssl_vit.methods.supervised import resolve as resolve_supervised
    from ssl_vit.models.batchnorm import takes_batch_statistics
    from ssl_vit.models.build import build_backbone, check_shape, model_facts
    from ssl_vit.runs.directory import open_run
    from ssl_vit.training import launch

    if cfg.model.name is not None:
        model_facts(resolve.full_name(cfg.model.name))
    accelerator = launch.start(cfg.fit.precision, cfg.seed)
    main_process, asked = accelerator.is_main_process, cfg
    if cfg.eval.data.path is None and cfg.eval.data.split is None:
        cfg = replace(cfg, eval=replace(cfg.eval, data=replace(cfg.eval.data, split=cfg.data.split)))
    data = labelled_for(cfg.data, cfg.eval)
    assert data.test.labels is not None
    metric = chosen_metric(cfg.eval.metric, data.test.kind, data.test.labels)
    if main_process:
        warn_unlearnable(data)
    short = cfg.data.window or data.train.sizes.short_side
    shape = model_facts(resolve.default_name(cfg.model, short, cfg.preset))
    model = resolve.resolve_model(cfg.model, short, shape, cfg.preset)
    check_shape(model)
    size, preset = model.img_size, resolve.preset_for(cfg.preset, model.img_size)
    data = on_canvas(data, cfg.data.canvas, size, cfg.data.window)
    launch.use_cores(accelerator, size)
    backbone = build_backbone(model, data.train.form.channels)
    facts = Facts(len(data.train), model, shape, data.train.kind)
    cfg = resolve_supervised(cfg, facts, preset)
    taken = takes_batch_statistics(backbone)
    cfg = replace(cfg, fit=launch.with_statistics(cfg.fit, accelerator.num_processes, taken))
    if main_process:
        parts = f"in patches of {model.patch_size} px" if shape.plain else f"for {model.name}"
        print(f"preset          {preset.name}, {size} px {parts}")
    run = open_run(
        "supervised", cfg, data=data.train.name, fingerprint=data.train.fingerprint, writes=main_process,
        accelerator=launch.describe(accelerator),
    )  # fmt: skip
    scale = measure_scale(data.train)
    trained = train_on_labels(
        backbone, data, scale, size=size, supervised=cfg.supervised, augment=cfg.augment, optim=cfg.optim,
        fit_cfg=cfg.fit, loading=cfg.data, run=run, accelerator=accelerator,
        seed=cfg.seed, metric=metric,
    )  # fmt: skip
    if not main_process:
        return
    recorded = {"objective": "supervised", "seed": cfg.seed}
    recorded |= {"positions": model.positions} if shape.plain else {}
    recorded |= recorded_data(cfg.data, cfg.eval.data)
    left = leave(trained.objective, run, scale, data.train, cfg.supervised, recorded)
    row = trained_row("from scratch", len(data.train), cfg, trained.metrics)
    options = {k: to_dict(getattr(asked, k)) for k in ("model", "supervised", "augment", "optim", "fit")}
    options["preset"] = {"asked": asked.preset}
    if taken:
        options["batch_statistics"] = {"of": asked.fit.given_micro_batch or "the whole batch"}
    result = result_of(
        "supervised", [row], options, data=data, size=size, metric=metric, cfg=cfg.eval, seed=cfg.seed
    )  # fmt: skip
    result |= {"selection": "none: fixed options, last step"}
    title = f"{data.test.name}: labelled baseline, {len(data.test):,} test images{led_by(metric, data.test)}"
    print_table(title, [row], {"method": "method", "labels": "labels"} | columns(data.test.kind, metric))
    path = run.write_result("supervised", result)
    save_answers(path, trained.answers)
    print(f"Result: {path}   {left}")


if __name__ == "__main__":
    run_script(main, SupervisedRecipe, __doc__ or "")
