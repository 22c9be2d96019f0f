"""Fine-tunes a pre-trained backbone on the labels, with layer-wise learning-rate decay.

The same code as recipes/supervised.py, so that the difference is the pre-training alone. The classifier that
eval/predict.py applies is left in the run. Larger images or finer patches than the backbone was trained with:
--model.img_size 384, --model.patch_size 8.
"""

from dataclasses import replace
from pathlib import Path

from ssl_vit.configs import DataConfig, RunConfig, to_dict
from ssl_vit.methods.supervised import FinetuneRecipe
from ssl_vit.script import run_script


def main(cfg: FinetuneRecipe) -> None:
    """Backbone and labelled images in, test accuracy and RUN/classifier out.

    Args:
        cfg: What ``--help`` lists.
    """
    from ssl_vit.configs import ResolvedModel, presets
    from ssl_vit.evaluation.answers import save_answers
    from ssl_vit.evaluation.finetune import leave, train_on_labels, trained_row
    from ssl_vit.evaluation.metrics import columns
    from ssl_vit.evaluation.printing import led_by, print_table
    from ssl_vit.evaluation.session import announce, open_session
    from ssl_vit.exports.origin import recorded_data
    from ssl_vit.methods import Facts
    from ssl_vit.methods.supervised import resolve_finetuning
    from ssl_vit.models.adapt import adapt
    from ssl_vit.models.backbone import TokenBackbone
    from ssl_vit.models.batchnorm import takes_batch_statistics
    from ssl_vit.models.build import ModelFacts
    from ssl_vit.runs.directory import open_run
    from ssl_vit.runs.identity import digest, identity
    from ssl_vit.training import launch

    accelerator = launch.start(cfg.fit.precision, cfg.seed)
    main_process = accelerator.is_main_process
    session = open_session(cfg.backbone, cfg.eval, cfg.run, main=main_process, img_size=cfg.model.img_size)
    exported, data = session.exported, session.data
    backbone = adapt(exported.backbone, img_size=cfg.model.img_size, patch_size=cfg.model.patch_size)
    patch = backbone.patch_size if isinstance(backbone, TokenBackbone) else None
    if main_process:
        announce(session)
    size = cfg.model.img_size or exported.size
    launch.use_cores(accelerator, size)
    asked = cfg
    model = ResolvedModel(
        backbone.architecture, size, patch, backbone.embed_dim, pool="mean" if exported.pool == "mean" else "cls"
    )
    shape = ModelFacts(
        size,
        patch or 1,
        backbone.embed_dim,
        backbone.depth,
        1,
        plain=patch is not None,
        drop_path=backbone.draws_drop_path,
    )
    facts = Facts(len(data.train), model, shape, data.train.kind)
    cfg = resolve_finetuning(cfg, facts, presets.preset_for(exported.about.get("preset"), size))
    taken = takes_batch_statistics(backbone)
    cfg = replace(cfg, fit=launch.with_statistics(cfg.fit, accelerator.num_processes, taken))
    if cfg.run.dir is None:
        plain = identity(to_dict(replace(cfg, backbone="")), type(cfg))
        unique = digest([plain, exported.weights_hash, data.train.fingerprint])[:8]
        cfg = replace(cfg, run=RunConfig(str(Path(exported.folder).parent / "finetune" / unique)))
    run = open_run(
        "finetune", cfg, data=data.train.name, fingerprint=f"{exported.weights_hash}-{data.train.fingerprint}",
        writes=main_process, accelerator=launch.describe(accelerator),
    )  # fmt: skip
    trained = train_on_labels(
        backbone, data, exported.scale, size=size, supervised=cfg.supervised, augment=cfg.augment,
        optim=cfg.optim, fit_cfg=cfg.fit, loading=cfg.data, run=run,
        accelerator=accelerator, seed=cfg.seed, metric=session.metric,
    )  # fmt: skip
    if not main_process:
        return
    objective_name = str(exported.about.get("objective", "backbone"))
    recorded = exported.about | {"objective": f"{objective_name} fine-tuned"}
    recorded |= {"eval_data": recorded_data(DataConfig(), session.judged_on)["eval_data"]}
    left = leave(trained.objective, run, exported.scale, data.train, cfg.supervised, recorded)
    row = trained_row(f"{objective_name}, fine-tuned", len(data.train), cfg, trained.metrics)
    options = {k: to_dict(getattr(asked, k)) for k in ("model", "supervised", "augment", "optim", "fit")}
    if taken:
        options["batch_statistics"] = {"of": asked.fit.given_micro_batch or "the whole batch"}
    result = session.result("finetune", [row], options, cfg.seed, size=size)
    result |= {"selection": "none: fixed options, last step"}
    title = f"{data.test.name}: fine-tuning, {len(data.test):,} test images{led_by(session.metric, data.test)}"
    print_table(title, [row], {"method": "method", "labels": "labels"} | columns(data.test.kind, session.metric))
    path = run.write_result("finetune", result)
    save_answers(path, trained.answers)
    print(f"Result: {path}   {left}")


if __name__ == "__main__":
    run_script(main, FinetuneRecipe, __doc__ or "")
