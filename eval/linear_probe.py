"""Logistic regression on frozen, standardised features, beside random weights and raw pixels.

The regularisation is chosen by cross-validation inside the training labels; the test images select nothing.
"""

from ssl_vit.configs import LinearRecipe, run_script, to_dict


def main(cfg: LinearRecipe) -> None:
    """Backbone in, table and RUN/results/linear_probe.json out.

    Args:
        cfg: What ``--help`` lists.
    """
    from ssl_vit import train
    from ssl_vit.evaluation.features import extract_features
    from ssl_vit.evaluation.linear import linear_probe
    from ssl_vit.evaluation.metrics import classification_metrics
    from ssl_vit.evaluation.session import announce, conclusion, contestants, open_session, print_table

    accelerator = train.start("fp32", cfg.seed)
    session = open_session(cfg.backbone, cfg.eval, cfg.run, main=accelerator.is_main_process)
    train.use_cores(accelerator, session.exported.size)
    if accelerator.is_main_process:
        announce(session)
    data, device = session.data, accelerator.device
    features = [
        (
            method,
            *(
                extract_features(extract, p, batch_size=cfg.eval.batch_size, device=device)
                for p in (data.train, data.test)
            ),
        )
        for method, extract in contestants(session, baselines=cfg.eval.baselines, seed=cfg.seed, device=device)
    ]
    if not accelerator.is_main_process:
        return
    rows = []
    classes = data.test.classes
    for method, bank, asked in features:
        fit = linear_probe(bank.x, bank.labels, asked.x, classes=len(classes), cfg=cfg.linear, seed=cfg.seed)
        metrics = classification_metrics(fit.scores, asked.labels, classes)
        row = {"method": method, "C": f"{fit.strength:g}", "selection": fit.selection, "converged": fit.converged}
        rows.append({**row, **metrics, "unreadable_test_images": list(asked.left_out)})
    columns = {"method": "features", "C": "C", "top1": "top-1 %", "top5": "top-5 %", "balanced": "balanced %"}
    print_table(f"{data.test.name}: logistic regression ({rows[0]['selection']})", rows, columns)
    print(conclusion(rows))
    protocol = {
        "linear": to_dict(cfg.linear),
        "eval": to_dict(cfg.eval),
        "pool": session.exported.pool,
        "view": "central square",
    }
    result = session.result("linear_probe", rows, protocol, cfg.seed)
    print(f"Result: {session.run.write_result(f'linear_probe{session.labels}', result)}")


if __name__ == "__main__":
    run_script(main, LinearRecipe, __doc__ or "")
