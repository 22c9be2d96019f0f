"""Checkpoints survive damage; exported backbones are what plain timm loads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import timm
import torch
from ssl_vit.configs import ResolvedModel
from ssl_vit.core.errors import UserError
from ssl_vit.data.scale import PixelScale
from ssl_vit.exports.timm_folder import export_backbone, load_backbone
from ssl_vit.models.build import build_backbone
from ssl_vit.models.vit import ViTBackbone
from ssl_vit.training.checkpoint import load_checkpoint, save_checkpoint
from timm.models import save_for_hf

SCALE = PixelScale((0.4, 0.5), (0.2, 0.3), 16)


def backbone() -> ViTBackbone:
    torch.manual_seed(0)
    return build_backbone(ResolvedModel("vit_small_patch16_224", 24, 4, 32, 2, 2, "sincos", "mean"), 2)


def exported(tmp_path: Path, pool: str = "mean") -> tuple[ViTBackbone, Path]:
    model = backbone()
    folder = tmp_path / "run" / "backbone"
    export_backbone(model, folder, SCALE, pool, {"objective": "MAE", "positions": "sincos"})
    return model, folder


def test_the_newest_sound_checkpoint_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, {"x": torch.tensor(step)}, keep=2)
    assert sorted(p.name for p in tmp_path.glob("*.pt")) == ["step_000000002.pt", "step_000000003.pt"]
    newest = tmp_path / "step_000000003.pt"
    newest.write_bytes(newest.read_bytes()[:-7])
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert (found["step"], int(found["x"])) == (2, 2)
    assert "step_000000003.pt is damaged" in capsys.readouterr().err


def test_a_damaged_later_checkpoint_does_not_crowd_out_new_ones(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 500, {"x": torch.tensor(500)}, keep=1)
    damaged = tmp_path / "step_000000500.pt"
    damaged.write_bytes(damaged.read_bytes()[:-7])
    save_checkpoint(tmp_path, 100, {"x": torch.tensor(100)}, keep=1)
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert found["step"] == 100
    assert [p.name for p in tmp_path.glob("*.pt")] == ["step_000000100.pt"]


def test_a_checkpoint_without_hash_is_not_used(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 5, {}, keep=1)
    (tmp_path / "step_000000005.sha256").unlink()
    assert load_checkpoint(tmp_path) is None


def test_a_write_that_fails_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {"x": torch.ones(2)}, keep=1)

    class Unsaveable:
        def __reduce__(self) -> str:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        save_checkpoint(tmp_path, 2, {"x": Unsaveable()}, keep=1)
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert found["step"] == 1


@pytest.mark.parametrize("pool", ["mean", "cls"])
def test_plain_timm_loads_the_folder_and_gives_the_same_features(tmp_path: Path, pool: str) -> None:
    model, folder = exported(tmp_path, pool)
    theirs = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    images = torch.randn(3, 2, 24, 24)
    with torch.no_grad():
        ours = model.eval().forward_pooled(images, pool=pool)  # pyright: ignore[reportArgumentType]
        assert (theirs(images) - ours).abs().max() <= 1e-5
    assert theirs.pretrained_cfg["mean"] == [0.4, 0.5]


def test_timm_loads_it_with_a_classifier_at_another_size(tmp_path: Path) -> None:
    _, folder = exported(tmp_path)
    model = timm.create_model(f"local-dir:{folder}", pretrained=True, num_classes=7, img_size=32)
    assert model(torch.randn(1, 2, 32, 32)).shape == (1, 7)


@pytest.mark.parametrize("given", ["run", "run/backbone"])
def test_round_trip(tmp_path: Path, given: str) -> None:
    model, _ = exported(tmp_path)
    found = load_backbone(str(tmp_path / given))
    assert (found.scale, found.pool, found.size, found.about["objective"]) == (SCALE, "mean", 24, "MAE")
    for name, value in model.state_dict().items():
        assert torch.equal(found.backbone.state_dict()[name], value), name
    random = found.with_random_weights(3)
    assert torch.equal(random.vit.pos_embed, model.vit.pos_embed)  # the sine-cosine table is no trained weight
    assert not torch.equal(random.vit.blocks[0].attn.qkv.weight, model.vit.blocks[0].attn.qkv.weight)


def test_wrong_folders(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--backbone is missing"):
        load_backbone("")
    with pytest.raises(UserError, match="does not exist"):
        load_backbone(str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"no config\.json"):
        load_backbone(str(tmp_path))
    (tmp_path / "config.yaml").write_text("seed: 0\n")
    with pytest.raises(UserError, match="has not finished"):
        load_backbone(str(tmp_path))


def test_weights_that_do_not_cover_the_network_are_refused(tmp_path: Path) -> None:
    _, folder = exported(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["model_args"]["depth"] = 3
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"do not fit .*blocks\.2"):
        load_backbone(str(folder))
    for wrong in ({"architecture": "no_such_model"}, {"model_args": {"colour": 1}}, {"pretrained_cfg": {}}):
        (folder / "config.json").write_text(json.dumps({**config, **wrong}))
        with pytest.raises(UserError, match=r"cannot be read|not a plain"):
            load_backbone(str(folder))
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"\0" * 40)
    with pytest.raises(UserError, match="cannot be read"):
        load_backbone(str(folder))


def test_what_is_exported_again_says_its_own_pooling(tmp_path: Path) -> None:
    """Fine-tuning passes on what it knows of the backbone it began with, whose pooling may be another."""
    model, folder = exported(tmp_path)
    first = load_backbone(str(folder))
    other = "cls" if first.pool == "mean" else "mean"
    export_backbone(model, tmp_path / "again", first.scale, other, {**first.about, "pool": first.pool, "bits": 1})
    again = load_backbone(str(tmp_path / "again"))
    assert (again.pool, again.scale) == (other, first.scale)


@pytest.mark.parametrize("classes", [0, 5])
def test_a_folder_that_timm_saved_is_a_backbone(classes: int, tmp_path: Path) -> None:
    model = timm.create_model("test_vit", num_classes=classes, in_chans=1, img_size=32).eval()
    save_for_hf(model, tmp_path / "saved", safe_serialization=True)
    found = load_backbone(str(tmp_path / "saved"))
    assert (found.backbone.channels, found.backbone.img_size, found.pool) == (1, 32, "cls")
    images = torch.rand(2, 1, 32, 32)
    with torch.no_grad():
        pooled = found.backbone.eval().forward_pooled(images, pool="cls")
        torch.testing.assert_close(pooled, model.forward_features(images)[:, 0])


def test_what_was_killed_before_its_hash_does_not_count_as_kept(tmp_path: Path) -> None:
    for step in (100, 200):
        save_checkpoint(tmp_path, step, {"x": torch.tensor(step)}, keep=2)
    (tmp_path / "step_000000200.sha256").unlink()
    save_checkpoint(tmp_path, 300, {"x": torch.tensor(300)}, keep=2)
    assert sorted(p.name for p in tmp_path.glob("*.pt")) == ["step_000000100.pt", "step_000000300.pt"]
    newest = tmp_path / "step_000000300.pt"
    newest.write_bytes(newest.read_bytes()[:-7])
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert found["step"] == 100
