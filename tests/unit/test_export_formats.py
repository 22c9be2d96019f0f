"""Exports for other libraries: what they say of a network, and that those libraries make the same of it."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import tifffile
import torch
from jaxtyping import TypeCheckError
from PIL import Image
from ssl_vit.configs import ExportRecipe, ModelConfig, networks
from ssl_vit.core import sums
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import sha256
from ssl_vit.core.started import module_of
from ssl_vit.data.scale import PixelScale
from ssl_vit.exports.classifier import Labelling, export_classifier
from ssl_vit.exports.formats import FORMATS, export_as
from ssl_vit.exports.timm_folder import Exported, export_backbone, load_backbone
from ssl_vit.models.build import build_backbone, model_facts
from ssl_vit.models.heads import Classifier

SCALE = PixelScale((0.5,) * 3, (0.25,) * 3, 8)


def made(folder: Path, name: str = "vit_micro", *, classifier: bool = False, **about: Any) -> Exported:
    torch.manual_seed(0)
    asked = ModelConfig(name)
    cfg = networks.resolve_model(asked, 16, model_facts(*networks.wanted(asked, 16)))
    backbone = build_backbone(cfg, 3)
    if not classifier:
        export_backbone(backbone, folder, SCALE, "mean", {"objective": "MAE", "seed": 3, **about})
        return load_backbone(str(folder))
    net = Classifier(backbone, 3, pool="mean_prenorm" if name == "vit_micro" else "mean")
    assert export_classifier(net, folder, SCALE, Labelling("class", ("a", "b", "c"), None), {"objective": "x"})
    return load_backbone(str(folder))


@pytest.mark.parametrize("name", ["vit_micro", "convnext_micro"])
@pytest.mark.parametrize("form", FORMATS)
def test_the_other_library_makes_the_same_of_it(form: str, name: str, tmp_path: Path) -> None:
    pytest.importorskip(FORMATS[form].needs[-1] if FORMATS[form].needs else "torch")
    exported = made(tmp_path / "run" / "backbone", name)

    def expected(images: torch.Tensor) -> torch.Tensor:
        return exported.backbone.eval().forward_pooled(images, pool="mean")

    out, apart = export_as(form, exported.folder, tmp_path / "out", expected, None)
    assert apart <= 1e-5
    images = torch.randn(5, 3, exported.size, exported.size)
    with torch.no_grad():
        torch.testing.assert_close(FORMATS[form].run(out, images), expected(images), rtol=1e-4, atol=1e-5)
    files = {path.name for path in out.iterdir()}
    assert {"README.md", "config.json"} < files
    assert ("model.safetensors" in files) == FORMATS[form].keeps
    assert ("load_backbone" in (out / "README.md").read_text()) == FORMATS[form].keeps  # which needs the weights
    assert all(path.stat().st_mode & stat.S_IROTH for path in out.iterdir())


@pytest.mark.parametrize("form", ["timm", "torchscript"])
def test_a_classifier_answers_alike(form: str, tmp_path: Path) -> None:
    made(tmp_path / "run" / "classifier", classifier=True)
    module = module_of("eval/export.py")
    out = module.main(ExportRecipe(classifier=str(tmp_path / "run"), format=form))
    assert out == tmp_path / "run" / f"export-{form}"
    assert FORMATS[form].run(out, torch.randn(2, 3, 16, 16)).shape == (2, 3)
    assert "it tells 3 classes (a, b, c)" in (out / "README.md").read_text()


@pytest.mark.parametrize(("name", "form"), [("vit_micro", "timm"), ("resnet_mini", "timm"), ("vit_micro", "hf")])
def test_half_precision_is_half_as_large_and_close(name: str, form: Any, tmp_path: Path) -> None:
    pytest.importorskip(FORMATS[form].needs[-1] if FORMATS[form].needs else "torch")
    run = tmp_path / "run"
    exported = made(run / "backbone", name)
    out = module_of("eval/export.py").main(ExportRecipe(backbone=str(run), format=form, half=True))
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (out, exported.folder)]
    assert sizes[0] < 0.55 * sizes[1]
    assert "16-bit numbers" in (out / "README.md").read_text()
    rounded, images = load_backbone(str(out)), torch.randn(4, 3, exported.size, exported.size)
    with torch.no_grad():
        found, wanted = (e.backbone.eval().forward_pooled(images, pool="mean") for e in (rounded, exported))
        torch.testing.assert_close(FORMATS[form].run(out, images), found, rtol=1e-4, atol=1e-5)
    apart = float((found - wanted).abs().max() / wanted.abs().max())
    assert 0 < apart < 1e-2
    assert {p.dtype for p in rounded.backbone.parameters()} == {torch.float32}


def test_half_precision_that_changes_much_or_is_no_weights_is_refused(tmp_path: Path) -> None:
    exported = made(tmp_path / "run" / "backbone")
    with pytest.raises(UserError, match="differs by"):
        export_as("timm", exported.folder, tmp_path / "out", lambda x: torch.ones(len(x), 64), None, half=True)
    with pytest.raises(UserError, match="formats that hold weights"):
        export_as("torchscript", exported.folder, tmp_path / "out", lambda x: torch.ones(len(x), 64), None, half=True)


def test_numbers_that_differ_are_refused_and_nothing_stays(tmp_path: Path) -> None:
    exported = made(tmp_path / "run" / "backbone")
    with pytest.raises(UserError, match="differs by"):
        export_as("timm", exported.folder, tmp_path / "out", lambda images: torch.ones(len(images), 64), None)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_folder_that_is_no_export_is_left_alone(tmp_path: Path) -> None:
    exported = made(tmp_path / "run" / "backbone")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="no export"):
        export_as("timm", exported.folder, tmp_path / "own", lambda images: images, None)
    assert (tmp_path / "own" / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("given", [{}, {"backbone": "a", "classifier": "b"}])
def test_exactly_one_network(given: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="name one network"):
        module_of("eval/export.py").check(ExportRecipe(**given))


def test_a_missing_package_is_told_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported = made(tmp_path / "run" / "backbone")
    monkeypatch.setitem(FORMATS, "odd", FORMATS["timm"]._replace(needs=("no_such_package",)))
    with pytest.raises(UserError, match=r"no_such_package.*ssl_vit\[export\]"):
        export_as("odd", exported.folder, tmp_path / "out", lambda images: images, None)
    assert not (tmp_path / "out").exists()


def test_the_card_says_what_it_is_and_keeps_folders_private(tmp_path: Path) -> None:
    data = {"path": "/home/somebody/secret/cells"}
    made(tmp_path / "run" / "backbone", data=data)
    text = (tmp_path / "run" / "backbone" / "README.md").read_text()
    assert text.startswith("---\nlibrary_name: timm\n")
    assert "| images | cells |" in text and "secret" not in text
    assert "16 x 16 pixels, 3 channels, 8 bits" in text and "timm's own transform cannot" not in text


def test_an_export_tells_no_folders_of_this_machine(tmp_path: Path) -> None:
    places = {"path": "/home/somebody/secret/cells", "labels": "digits", "root": "/secret/a,/secret/b"}
    run = tmp_path / "run"
    made(run / "backbone", data=places, eval_data=places, started_from={"weights": "/secret/dino.pth"},
         teacher={"architecture": "vit", "weights": "0", "data": places, "given": "~/secret/run"})  # fmt: skip
    out = module_of("eval/export.py").main(ExportRecipe(backbone=str(run)))
    assert not [file for file in out.iterdir() if b"secret" in file.read_bytes()]
    about = json.loads((out / "config.json").read_text())["ssl_vit"]
    assert about["data"] == {"path": "cells", "labels": "digits", "root": "a,b"} == about["teacher"]["data"]
    assert about["started_from"]["weights"] == "dino.pth" and about["teacher"]["given"] == "run"
    assert sums.read(out)["config.json"] == sha256(out / "config.json")
    assert load_backbone(str(run)).about["data"] == places


def test_a_classifier_is_exported_without_its_head_as_a_backbone(tmp_path: Path) -> None:
    exported = made(tmp_path / "run" / "classifier", classifier=True)
    out = module_of("eval/export.py").main(ExportRecipe(backbone=str(tmp_path / "run" / "classifier")))
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        expected = exported.backbone.eval().forward_pooled(images, pool=exported.pool)
        torch.testing.assert_close(FORMATS["timm"].run(out, images), expected, rtol=1e-4, atol=1e-5)
    assert "classifier" not in load_backbone(str(out)).about


def test_two_networks_side_by_side_have_exports_of_their_own(tmp_path: Path) -> None:
    for name in ("one", "other"):
        made(tmp_path / "nets" / name)
        out = module_of("eval/export.py").main(ExportRecipe(backbone=str(tmp_path / "nets" / name)))
        assert out == tmp_path / "nets" / name / "export-timm"


@pytest.mark.parametrize(("out", "words"), [("file/x", "cannot be written"), (".", "is no name of a folder")])
def test_an_export_that_cannot_be_put_there(
    out: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    exported = made(tmp_path / "run" / "backbone")
    with pytest.raises(UserError, match=f"--out {out} {words}"):
        export_as("timm", exported.folder, Path(out), lambda images: images, None)


def test_files_are_read_as_evaluation_reads_them(tmp_path: Path) -> None:
    exported = made(tmp_path / "run" / "backbone")
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    found = exported.preprocess(tmp_path / "a.png", tmp_path / "a.png")
    expected = (torch.from_numpy(pixels).permute(2, 0, 1) / 255 - 0.5) / 0.25
    torch.testing.assert_close(found, expected.expand(2, -1, -1, -1))
    with pytest.raises(UserError, match="cannot be read"):
        exported.preprocess(tmp_path / "missing.png")
    with pytest.raises(UserError, match="preprocess takes the path of an image, or several"):
        exported.preprocess()
    with pytest.raises((UserError, TypeCheckError), match=r"takes the path of an image|parameter '?paths"):
        exported.preprocess([tmp_path / "a.png"])  # pyright: ignore[reportArgumentType]


def test_whole_numbers_are_no_weights(tmp_path: Path) -> None:
    folder = made(tmp_path / "backbone").folder
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    safetensors.torch.save_file({**weights, "norm.bias": weights["norm.bias"].int()}, folder / "model.safetensors")
    with pytest.raises(UserError, match=r"do not fit .*: norm\.bias"):
        load_backbone(str(folder))


def test_a_scale_of_other_channels_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "backbone").folder
    config = json.loads((folder / "config.json").read_text())
    config["pretrained_cfg"] |= {"mean": [0.1, 0.2], "std": [0.1, 0.2]}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"a number for each of the 3 channel\(s\) that .* reads, not 2"):
        load_backbone(str(folder))


def test_sixteen_bits_and_many_channels(tmp_path: Path) -> None:
    torch.manual_seed(0)
    asked = ModelConfig("vit_micro")
    cfg = networks.resolve_model(asked, 16, model_facts(*networks.wanted(asked, 16)))
    scale = PixelScale((0.1,) * 5, (0.2,) * 5, 16)
    export_backbone(build_backbone(cfg, 5), tmp_path / "backbone", scale, "mean", {})
    exported = load_backbone(str(tmp_path / "backbone"))
    pixels = np.random.default_rng(0).integers(0, 2**16, (5, 16, 16), dtype=np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", pixels)
    expected = (torch.from_numpy(pixels.astype(np.float32)) / 65535 - 0.1) / 0.2
    torch.testing.assert_close(exported.preprocess(tmp_path / "a.tif")[0], expected)
    assert "timm's own transform cannot" in (tmp_path / "backbone" / "README.md").read_text()
    about = json.loads((tmp_path / "backbone" / "config.json").read_text())["ssl_vit"]
    assert "timm's own transform" in about["preprocessing"]


def test_an_export_takes_the_place_of_nothing_but_an_earlier_one(tmp_path: Path) -> None:
    exported = made(tmp_path / "run" / "backbone")

    def expected(images: torch.Tensor) -> torch.Tensor:
        return exported.backbone.eval().forward_pooled(images, pool="mean")

    for place in (exported.folder, exported.folder.parent, tmp_path):
        with pytest.raises(UserError, match="is or holds the network to export"):
            export_as("timm", exported.folder, place, expected, None)
    out = tmp_path / "out"
    export_as("timm", exported.folder, out, expected, None)
    export_as("timm", exported.folder, out, expected, None)
    (out / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"also holds notes\.txt, which no export wrote and which would be lost"):
        export_as("timm", exported.folder, out, expected, None)
    assert (out / "notes.txt").read_text() == "mine"
