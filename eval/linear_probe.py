"""A linear (or attentive) probe on a frozen backbone, beside random weights and, where features are used, raw pixels.

--linear.protocol names what is done; numbers of different protocols are not comparable. Whatever is chosen is chosen
by cross-validation inside the training labels; the test images select nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssl_vit.configs import LinearRecipe
from ssl_vit.configs.protocols import probe_named
from ssl_vit.script import run_script

if TYPE_CHECKING:
    from ssl_vit.evaluation.judging import Evaluated


def main(cfg: LinearRecipe) -> Evaluated:
    """Backbone in, table and RUN/results/PROTOCOL.json out.

    Args:
        cfg: What ``--help`` lists.
    """
    protocol = probe_named(cfg.linear.protocol)
    from ssl_vit.evaluation.judging import evaluate

    return evaluate(cfg, protocol)


if __name__ == "__main__":
    run_script(main, LinearRecipe, __doc__ or "")
