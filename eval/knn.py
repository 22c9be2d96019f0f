"""Weighted k-nearest neighbours on frozen features, exactly as DINO evaluates, beside random weights and raw pixels."""

from ssl_vit.configs import KNNRecipe, run_script, to_dict


def main(cfg: KNNRecipe) -> None:
    """Backbone in, table and RUN/results/knn.json out.

    Args:
        cfg: What ``--help`` lists.
    """
    import torch

    from ssl_vit import train
    from ssl_vit.evaluation.features import extract_features
    from ssl_vit.evaluation.knn import knn_scores
    from ssl_vit.evaluation.metrics import classification_metrics
    from ssl_vit.evaluation.session import announce, conclusion, contestants, open_session, print_table

    accelerator = train.start("fp32", cfg.seed)
    session = open_session(cfg.backbone, cfg.eval, cfg.run, main=accelerator.is_main_process)
    train.use_cores(accelerator, session.exported.size)
    if accelerator.is_main_process:
        announce(session)
    data, device = session.data, accelerator.device
    ks = tuple(sorted({cfg.knn.k, *cfg.knn.also}))
    rows = []
    for method, extract in contestants(session, baselines=cfg.eval.baselines, seed=cfg.seed, device=device):
        bank, asked = (
            extract_features(extract, part, batch_size=cfg.eval.batch_size, device=device)
            for part in (data.train, data.test)
        )
        tensors = [torch.from_numpy(a).to(device) for a in (bank.x, bank.labels, asked.x)]
        scores = knn_scores(*tensors, ks=ks, classes=len(data.test.classes), temperature=cfg.knn.temperature)
        for k in ks:
            metrics = classification_metrics(scores[k].cpu().numpy(), asked.labels, data.test.classes)
            shown = f"{k}" if k <= len(bank.x) else f"{k} (all {len(bank.x)})"
            rows.append({"method": method, "k": k, "neighbours": shown, "headline": k == cfg.knn.k, **metrics,
                         "unreadable_test_images": list(asked.left_out)})  # fmt: skip
    if not accelerator.is_main_process:
        return
    columns = {"method": "features", "neighbours": "k", "top1": "top-1 %", "top5": "top-5 %", "balanced": "balanced %"}
    heads = [row for row in rows if row["headline"]]
    print_table(f"{data.test.name}: weighted k-NN, k = {cfg.knn.k}", heads, columns)
    print(conclusion(heads))
    others = [row for row in rows if not row["headline"] and row["method"] == rows[0]["method"]]
    if others:
        print_table("other k, for comparison; all rows are in the result file", others, columns)
    protocol = {
        "knn": to_dict(cfg.knn),
        "eval": to_dict(cfg.eval),
        "pool": session.exported.pool,
        "view": "central square",
        "metric": "cosine",
    }
    result = session.result("knn", rows, protocol, cfg.seed) | {"selection": "none: k is fixed beforehand"}
    print(f"Result: {session.run.write_result(f'knn{session.labels}', result)}")


if __name__ == "__main__":
    run_script(main, KNNRecipe, __doc__ or "")
