"""A linear (or attentive) probe on a frozen backbone, beside random weights and, where features are used, raw pixels.

--linear.protocol names what is done; numbers of different protocols are not comparable. Whatever is chosen is chosen
by cross-validation inside the training labels; the test images select nothing.
"""

from ssl_vit.configs import LinearRecipe
from ssl_vit.script import run_script


def main(cfg: LinearRecipe) -> None:
    """Backbone in, table and RUN/results/PROTOCOL.json out.

    Args:
        cfg: What ``--help`` lists.
    """
    from ssl_vit.evaluation.answers import save_answers
    from ssl_vit.evaluation.linear_protocols import FILES, NAMES, judge_linear
    from ssl_vit.evaluation.metrics import columns
    from ssl_vit.evaluation.printing import conclusion, led_by, print_table
    from ssl_vit.evaluation.session import announce, open_session
    from ssl_vit.training import launch

    accelerator = launch.start(cfg.fit.precision, cfg.seed)
    session = open_session(cfg.backbone, cfg.eval, cfg.run, main=accelerator.is_main_process)
    launch.use_cores(accelerator, session.exported.size)
    if accelerator.is_main_process:
        announce(session)
    judged = judge_linear(cfg, session, accelerator)
    if not accelerator.is_main_process:
        return
    name, file = NAMES[cfg.linear.protocol], FILES[cfg.linear.protocol]
    shown = {"method": "features", "pool": "pooling", "rate": "rate", "decay": "decay", "C": "C"}
    shown |= columns(session.data.test.kind, session.metric)
    why = led_by(session.metric, session.data.test)
    print_table(f"{session.data.test.name}: {name} ({judged.note}){why}", judged.rows, shown)
    print(conclusion(judged.rows, session.metric))
    result = session.result(name, judged.rows, judged.protocol, cfg.seed)
    path = session.run.write_result(f"{file}{session.suffix(cfg.seed)}", result)
    save_answers(path, judged.answers)
    print(f"Result: {path}")


if __name__ == "__main__":
    run_script(main, LinearRecipe, __doc__ or "")
