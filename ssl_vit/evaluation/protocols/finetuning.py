"""Fine-tuning: all weights of a backbone trained on the labels, with the one code of the labelled baseline."""

from __future__ import annotations

from accelerate import Accelerator

from ssl_vit.configs import DataConfig, ResolvedModel
from ssl_vit.evaluation.judging import Judged
from ssl_vit.evaluation.labelled_run import Ingredients, train_and_judge
from ssl_vit.evaluation.protocol import preset_of
from ssl_vit.evaluation.session import Session
from ssl_vit.exports.origin import recorded_data
from ssl_vit.methods import Facts
from ssl_vit.methods.supervised import FinetuneRecipe, resolve_finetuning
from ssl_vit.models.adapt import adapt
from ssl_vit.models.backbone import TokenBackbone
from ssl_vit.models.build import ModelFacts


def judge(cfg: FinetuneRecipe, session: Session, accelerator: Accelerator) -> Judged:
    """The protocol finetune.

    Options left open come from the preset that the backbone was pre-trained with, as the labelled baseline's do.

    Args:
        cfg: What ``--help`` lists.
        session: Backbone and images.
        accelerator: Made by ``launch.start``.

    Raises:
        UserError: For sizes that the backbone cannot take.
    """
    exported, data = session.exported, session.data
    backbone = adapt(exported.backbone, img_size=cfg.model.img_size, patch_size=cfg.model.patch_size)
    size, width = cfg.model.img_size or exported.size, backbone.embed_dim
    patch = backbone.patch_size if isinstance(backbone, TokenBackbone) else None
    pool = "mean" if exported.pool == "mean" else "cls"
    shape = ModelFacts(
        size, patch or 1, width, backbone.depth, 1, plain=patch is not None, drop_path=backbone.draws_drop_path
    )
    facts = Facts(len(data.train), ResolvedModel(backbone.architecture, size, patch, width, pool=pool), shape,
                  data.train.kind)  # fmt: skip
    preset, objective = preset_of(exported, size), str(exported.about.get("objective", "backbone"))
    recorded = exported.about | {"objective": f"{objective} fine-tuned", "preset": preset.name}
    recorded |= {"eval_data": recorded_data(DataConfig(), session.judged_on)["eval_data"]}
    given = Ingredients(
        f"{objective}, fine-tuned", backbone, data, exported.scale, session.metric, facts, preset,
        (exported.weights_hash, data.train.fingerprint), recorded, exported.folder.parent / "finetune",
    )  # fmt: skip
    return train_and_judge("finetune", cfg, resolve_finetuning, given, accelerator)
