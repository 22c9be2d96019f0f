"""Fine-tuning: all weights of a backbone trained on the labels, with the one code of the labelled baseline."""

from __future__ import annotations

from accelerate import Accelerator

from ssl_vit.configs import AdaptConfig, DataConfig, FinetuneRecipe, presets
from ssl_vit.evaluation.judging import Judged
from ssl_vit.evaluation.labelled_run import Ingredients, train_and_judge
from ssl_vit.evaluation.protocol import made_with
from ssl_vit.evaluation.session import Session
from ssl_vit.exports.origin import recorded_data
from ssl_vit.models.adapt import adapt
from ssl_vit.models.backbone import TokenBackbone


def judge(cfg: FinetuneRecipe, session: Session, accelerator: Accelerator) -> Judged:
    """The protocol finetune.

    Options left open come from the preset that the backbone was pre-trained with, as the labelled baseline's do; from
    the one for the input's size where the backbone records none.

    Args:
        cfg: What ``--help`` lists.
        session: Backbone and images.
        accelerator: Made by ``launch.start``.

    Raises:
        UserError: For sizes that the backbone cannot take.
    """
    exported, data = session.exported, session.data
    backbone = adapt(exported.backbone, img_size=cfg.model.img_size, patch_size=cfg.model.patch_size)
    size = cfg.model.img_size or exported.size
    objective = str(exported.about.get("objective", "backbone"))
    known = exported.about.get("preset") or made_with(exported.folder).get("preset")
    preset = presets.PRESETS.get(str(known)) or presets.for_side(size)
    recorded = exported.about | {"objective": f"{objective} fine-tuned", "preset": preset.name}
    recorded |= {"eval_data": recorded_data(DataConfig(), session.judged_on)["eval_data"]}
    given = Ingredients(
        f"{objective}, fine-tuned", backbone, data, exported.scale, session.metric, size,
        AdaptConfig(size, backbone.patch_size if isinstance(backbone, TokenBackbone) else None),
        preset, exported.pool, "finetune", (exported.weights_hash, data.train.fingerprint), recorded,
        exported.folder.parent / "finetune",
    )  # fmt: skip
    return train_and_judge("finetune", cfg, given, accelerator)
