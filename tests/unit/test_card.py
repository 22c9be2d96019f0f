"""Model cards: what they say before and after a network was judged, and that their code does what it says."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
import yaml
from huggingface_hub import ModelCard
from PIL import Image
from ssl_vit.configs import ResolvedModel
from ssl_vit.data.scale import PixelScale
from ssl_vit.data.targets import TargetScale
from ssl_vit.exports.card import model_card, read_config, tell_results
from ssl_vit.exports.classifier import Labelling, export_classifier, load_classifier
from ssl_vit.exports.formats import FORMATS, export_as
from ssl_vit.exports.timm_folder import export_backbone, load_backbone
from ssl_vit.models.build import build_backbone
from ssl_vit.models.heads import Classifier
from ssl_vit.runs.networks import weights_hash

from made_results import KNN, write

CLASSES = Labelling("class", ("cat", "dog", "owl"), None)
SUPERVISED = {"supervised": {"pool": "mean"}, "fit": {"epochs": 1}, "augment": {}, "model": {}}


def network(channels: int = 3) -> Any:
    torch.manual_seed(0)
    return build_backbone(ResolvedModel("vit_small_patch16_224", 8, 4, 32, 1, 2, "sincos", "mean"), channels)


def scale(channels: int = 3, bits: int = 8) -> PixelScale:
    return PixelScale((0.5,) * channels, (0.25,) * channels, bits)


def backbone_in(run: Path, channels: int = 3, bits: int = 8, **about: Any) -> Path:
    export_backbone(network(channels), run / "backbone", scale(channels, bits), "mean", {"objective": "MAE", **about})
    return run / "backbone"


def classifier_in(run: Path, labelling: Labelling = CLASSES, channels: int = 3, bits: int = 8) -> Path:
    net = Classifier(network(channels), len(labelling.names), pool="mean")
    assert export_classifier(net, run / "classifier", scale(channels, bits), labelling, {"objective": "supervised"})
    return run / "classifier"


def card(folder: Path) -> str:
    return (folder / "README.md").read_text()


def judge(folder: Path, name: str = "knn", value: float = 81.25, **kinds: Any) -> Path:
    weights = {"weights": weights_hash(folder), "options": {}}
    return write(folder.parent / "results" / f"{name}.json", {"MAE": value}, backbone=weights, **kinds)


def test_a_result_reaches_the_card_and_what_its_owner_wrote_stays(tmp_path: Path) -> None:
    folder = backbone_in(tmp_path)
    assert "Nobody has judged it yet" in card(folder)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "README.md").write_text(card(folder).replace("vision", "vision\nlicense: mit") + "\nMy own words.\n")
    judge(folder)
    tell_results(tmp_path)
    text = card(folder)
    assert "| MAE | knn | 81.2 (1) |" in text and "judged it yet" not in text
    assert "license: mit" in text and text.endswith("\nMy own words.\n")
    assert {path.name for path in folder.iterdir()} == set(files)
    assert all((folder / name).read_bytes() == files[name] for name in ("config.json", "model.safetensors"))
    tell_results(tmp_path)
    assert card(folder) == text
    backbone_in(tmp_path)  # the same weights: what they are worth is still known
    assert "81.2" in card(folder)


def test_results_of_other_weights_are_not_told(tmp_path: Path) -> None:
    folder = backbone_in(tmp_path)
    judge(folder)
    path = tmp_path / "results" / "knn.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps(result | {"backbone": {"weights": "0" * 16}}))
    (tmp_path / "results" / "half.json").write_text("{")
    tell_results(tmp_path)
    assert "Nobody has judged it yet" in card(folder)


def test_results_that_may_not_stand_in_one_table_get_one_each(tmp_path: Path) -> None:
    folder = backbone_in(tmp_path)
    judge(folder)
    judge(folder, "knn-5", 50.0, options={"knn": {**KNN["knn"], "k": 5}})
    tell_results(tmp_path)
    assert "81.2 (1)" in card(folder) and "50.0 (1)" in card(folder)


def test_a_classifier_is_told_what_its_training_ended_with(tmp_path: Path) -> None:
    start, run = backbone_in(tmp_path), tmp_path / "finetune" / "a"
    folder = classifier_in(run)
    assert "Not judged yet" in card(folder) and "ssl-vit knn" not in card(folder)
    came_from = {"weights": weights_hash(start), "options": {}}
    write(run / "results" / "finetune.json", {"MAE": 93.75}, method="finetune", options=SUPERVISED, backbone=came_from)
    judge(folder, "knn", 12.5)  # of its features: not about its answers
    tell_results(run)
    assert "| MAE | finetune | 93.8 (1) |" in card(folder) and "knn" not in card(folder)
    assert "93.8" in card(start)  # what fine-tuning makes of it
    classifier_in(run)  # the same again
    assert "93.8" in card(folder)
    (folder / "model.safetensors").write_bytes(b"")  # trained on: what its result will be is not known yet
    classifier_in(run)
    assert "Not judged yet" in card(folder)


def test_the_training_stands_in_the_card(tmp_path: Path) -> None:
    options = {
        "seed": 5, "run": {"dir": None}, "fit": {"epochs": 3.0, "batch_size": 128}, "mae": {"mask_ratio": 0.5},
        "optim": {"name": "adamw", "lr": None, "base_lr": 0.003, "weight_decay": 0.05},
        "augment": {"crop_scale": [0.2, 1.0], "flip": True}, "data": {"path": "/home/me/secret"},
    }  # fmt: skip
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(options))
    (tmp_path / "metrics.jsonl").write_text('{"step": 9, "epoch": 1.0}\n{"step": 1234, "epoch": 3.004, "loss": 1}\n')
    text = card(backbone_in(tmp_path, method="mae", images=2800))
    for line in (
        "| seed | 5 |",
        "| number of images | 2,800 |",
        "| length | 3.004 epochs, 1,234 steps |",
        "| effective batch | 128 images |",
        "| peak learning rate | 0.0015 |",
        "| optimiser | name adamw, weight_decay 0.05 |",
        "| views | crop_scale [0.2, 1.0], flip True |",
        "| loss | mask_ratio 0.5 |",
    ):
        assert f"\n{line}\n" in text
    assert "secret" not in text
    assert "How it was trained" not in card(backbone_in(tmp_path / "elsewhere"))


def test_a_teacher_stands_in_the_card(tmp_path: Path) -> None:
    taught = {"teacher": "/home/me/secret", "distillation": "hard", "weight": 0.5}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"run": {"dir": None}, "taught": taught, **SUPERVISED}))
    teacher = {"architecture": "cct_7_3x1_32", "network": "cct_micro (cct_7_3x1_32) at 32 px", "weights": "abc"}
    text = card(backbone_in(tmp_path, teacher={**teacher, "objective": "supervised", "images": 1200}))
    assert f"\n| teacher | {teacher['network']}, weights abc, trained by supervised on 1,200 images |\n" in text
    assert "\n| what the teacher adds | distillation hard, weight 0.5 |\n" in text
    assert "secret" not in text
    del teacher["network"]  # of other versions
    assert "\n| teacher | cct_7_3x1_32, weights abc |\n" in card(backbone_in(tmp_path, teacher=teacher))


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("form", FORMATS)
def test_the_block_on_top_is_the_hubs(form: str, labels: bool, tmp_path: Path) -> None:
    folder = classifier_in(tmp_path) if labels else backbone_in(tmp_path)
    text = model_card(read_config(folder), form=form)
    found = ModelCard(text)
    assert str(found) == text and text.startswith("---\nlibrary_name: ")
    told: Any = found.data
    assert told.pipeline_tag == ("image-classification" if labels else "image-feature-extraction")
    assert ("AutoModelForImageClassification" in text) == (labels and form == "hf")
    assert ("load_classifier" in text) == (labels and form in ("timm", "hf"))


def ran(folder: Path, run: Path, **given: Any) -> dict[str, Any]:
    """What the code of a card leaves, run in the folder of image.png and image.tif."""
    blocks = re.findall(r"```python\n(.*?)```", card(folder), flags=re.DOTALL)
    assert blocks
    names = dict(given)
    for block in blocks:
        exec(block.replace("FOLDER", str(folder)).replace("RUN", str(run)), names)
    return names


@pytest.mark.parametrize("labelling", [
    CLASSES,
    Labelling("multilabel", ("a", "b"), None),
    Labelling("regression", ("age",), TargetScale((10.0,), (2.0,))),
])  # fmt: skip
@pytest.mark.parametrize("form", ["timm", "hf"])
def test_code_of_classifiers(form: str, labelling: Labelling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(FORMATS[form].needs[-1] if FORMATS[form].needs else "torch")
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (8, 8), (200, 10, 90)).save("image.png")
    source = classifier_in(tmp_path / "run", labelling)
    trained = load_classifier(str(source))
    images = trained.exported.preprocess("image.png")
    folder, _ = export_as(form, source, tmp_path / "out", trained.net.eval(), None)
    with torch.no_grad():
        outputs = trained.net(images)
    said = io.StringIO()
    with redirect_stdout(said):
        names = ran(folder, tmp_path / "run")
    np.testing.assert_allclose(names["answers"], labelling.answers(outputs.numpy())[0], rtol=1e-6)
    assert all(repr(name) in said.getvalue() for name in labelling.names)
    found = names["model"](images)  # of the last block
    torch.testing.assert_close(found if form == "timm" else found.logits, outputs, rtol=1e-4, atol=1e-5)
    if form == "hf":  # its pipelines make of outputs what they mean, or offer nothing
        kinds = {"class": "single_label", "multilabel": "multi_label"}
        problem = f"{kinds[labelling.kind]}_classification" if labelling.kind in kinds else "regression"
        assert names["model"].config.problem_type == problem
        tag: Any = ModelCard(card(folder)).data
        assert tag.pipeline_tag == ("image-classification" if labelling.kind in kinds else None)
        if labelling.kind in kinds:
            import transformers

            pipe = transformers.pipeline(
                "image-classification", model=names["model"], image_processor=transformers.ViTImageProcessor()
            )
            answers = {
                one["label"]: one["score"] for one in pipe.postprocess({"logits": found.logits.detach()}, top_k=3)
            }
            told = [answers[names["model"].config.id2label[i]] for i in range(outputs.shape[1])]
            np.testing.assert_allclose(told, labelling.answers(outputs.numpy())[0], rtol=1e-4)


@pytest.mark.filterwarnings("ignore:`torch.jit.load`:FutureWarning")  # other programs cannot load its successor yet
@pytest.mark.parametrize("answers", [False, True])
@pytest.mark.parametrize("form", ["torchscript", "onnx"])
def test_code_for_images_of_many_channels(
    form: str, answers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(FORMATS[form].needs[-1] if FORMATS[form].needs else "torch")
    monkeypatch.chdir(tmp_path)
    tifffile.imwrite("image.tif", np.random.default_rng(0).integers(0, 2**16, (5, 8, 8), dtype=np.uint16))
    run = tmp_path / "run"
    source = classifier_in(run, CLASSES, 5, 16) if answers else backbone_in(run, 5, 16)
    exported = load_backbone(str(source))

    def expected(images: torch.Tensor) -> torch.Tensor:
        if answers:
            return load_classifier(str(source)).net.eval()(images)
        return exported.backbone.eval().forward_pooled(images, pool="mean")

    folder, _ = export_as(form, source, tmp_path / "out", expected, None)
    outputs = torch.as_tensor(ran(folder, run)["outputs"])
    torch.testing.assert_close(outputs, expected(exported.preprocess("image.tif")), rtol=1e-4, atol=1e-5)


def test_code_of_backbones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (8, 8), (200, 10, 90)).save("image.png")
    names = ran(backbone_in(tmp_path), tmp_path)
    found = names["model"](load_backbone(str(tmp_path)).preprocess("image.png"))
    torch.testing.assert_close(found, names["features"], rtol=1e-4, atol=1e-5)
