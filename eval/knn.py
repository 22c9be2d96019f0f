"""Weighted k-nearest neighbours on frozen features, exactly as DINO evaluates, beside random weights and raw pixels."""

from ssl_vit.configs import KNNRecipe
from ssl_vit.script import run_script


def main(cfg: KNNRecipe) -> None:
    """Backbone in, table and RUN/results/knn.json out.

    Args:
        cfg: What ``--help`` lists.
    """
    import torch

    from ssl_vit.evaluation.answers import answers_of, save_answers
    from ssl_vit.evaluation.knn import knn_means, knn_scores, log_shares, share_logits
    from ssl_vit.evaluation.metrics import columns, judge
    from ssl_vit.evaluation.printing import conclusion, led_by, print_table
    from ssl_vit.evaluation.session import announce, arithmetic, contestants, extract_both, open_session
    from ssl_vit.training import launch

    accelerator = launch.start("fp32", cfg.seed)
    session = open_session(cfg.backbone, cfg.eval, cfg.run, main=accelerator.is_main_process)
    launch.use_cores(accelerator, session.exported.size)
    if accelerator.is_main_process:
        announce(session)
    data, device = session.data, accelerator.device
    kind, names = data.test.kind, data.test.classes
    ks = tuple(sorted({cfg.knn.k, *cfg.knn.also}))
    groups, rows, answers = data.test.groups, [], None
    for contestant in contestants(session, cfg.eval, seed=cfg.seed, device=device):
        bank, asked = extract_both(session, contestant, cfg.eval, device)
        x, queries = (torch.from_numpy(features.x).to(device) for features in (bank, asked))
        labels, options = torch.from_numpy(bank.labels), {"ks": ks, "temperature": cfg.knn.temperature}
        if kind == "class":
            votes = knn_scores(x, labels.to(device), queries, classes=len(names), **options)
            scores = {k: log_shares(found) for k, found in votes.items()}
        else:
            scores = knn_means(x, labels, queries, **options)
            if kind == "multilabel":
                scores = {k: share_logits(found) for k, found in scores.items()}
        if answers is None:  # the backbone's, which comes first
            own = None if groups is None else groups[asked.index]
            leading = scores[cfg.knn.k].numpy()
            answers = answers_of(kind, session.metric, leading, asked.labels, names, own, positions=asked.index)
        for k in ks:
            only = None if k == cfg.knn.k else session.metric
            metrics = judge(kind, scores[k].numpy(), asked.labels, names, only=only)
            used = f"{k}" if k <= len(bank.x) else f"{k} (all {len(bank.x)})"
            rows.append({"method": contestant.method, "k": k, "neighbours": used, "headline": k == cfg.knn.k, **metrics,
                         "unreadable_test_images": list(asked.left_out)})  # fmt: skip
    if not accelerator.is_main_process:
        return
    shown = {"method": "features", "neighbours": "k", **columns(kind, session.metric)}
    heads = [row for row in rows if row["headline"]]
    why = led_by(session.metric, data.test)
    print_table(f"{data.test.name}: weighted k-NN, k = {cfg.knn.k}{why}", heads, shown)
    print(conclusion(heads, session.metric))
    others = [row for row in rows if not row["headline"] and row["method"] == rows[0]["method"]]
    if others:
        print_table("other k, for comparison; all rows are in the result file", others, shown)
    protocol = {
        "knn": {"k": cfg.knn.k, "temperature": cfg.knn.temperature, "similarity": "cosine"},
        "pool": session.exported.pool,
        **arithmetic(cfg.eval),
    }
    result = session.result("knn", rows, protocol, cfg.seed) | {"selection": "none: k is fixed beforehand"}
    path = session.run.write_result(f"knn{session.suffix(cfg.seed)}", result)
    save_answers(path, answers or {})
    print(f"Result: {path}")


if __name__ == "__main__":
    run_script(main, KNNRecipe, __doc__ or "")
