"""Exports a network for timm, transformers, ONNX or TorchScript, with a model card, and proves that it is the same.

ssl-vit export --backbone RUN --format onnx
ssl-vit export --classifier RUN --format hf --push OWNER/NAME
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ssl_vit.configs import ExportRecipe
from ssl_vit.core.errors import UserError
from ssl_vit.runs.networks import network_folder
from ssl_vit.script import run_script

if TYPE_CHECKING:
    from torch import Tensor


def check(cfg: ExportRecipe) -> None:
    """What can be told before anything is loaded.

    Raises:
        UserError: Unless exactly one network is named, and is there.
    """
    if bool(cfg.backbone) == bool(cfg.classifier):
        raise UserError("name one network: --backbone RUN (vectors) or --classifier RUN (answers)")
    if cfg.backbone:
        network_folder(cfg.backbone)


def main(cfg: ExportRecipe) -> Path:
    """A run in, a folder for another library out.

    Args:
        cfg: What ``--help`` lists.

    Returns:
        The folder.
    """
    from ssl_vit.exports.classifier import load_classifier
    from ssl_vit.exports.formats import export_as, push
    from ssl_vit.exports.timm_folder import load_backbone

    check(cfg)
    if cfg.classifier:
        trained = load_classifier(cfg.classifier)
        exported, expected = trained.exported, trained.net.eval()
    else:
        exported = load_backbone(cfg.backbone)
        backbone, pool = exported.backbone.eval(), exported.pool

        def expected(images: Tensor) -> Tensor:
            return backbone.forward_pooled(images, pool=pool)

    run = exported.folder.parent
    out = Path(cfg.out).expanduser() if cfg.out else run / f"export-{cfg.format}"
    folder = export_as(cfg.format, exported.folder, out, expected, run)
    print(f"{folder}: {cfg.format}, the same numbers as this project's (1e-5); README.md says how to load it")
    if cfg.push:
        print(f"On the hub: {push(folder, cfg.push)}")
    return folder


if __name__ == "__main__":
    run_script(main, ExportRecipe, __doc__ or "")
