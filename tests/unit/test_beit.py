"""BEiT's visual words and blocks: closed cases, seeds, and a run that keeps its words."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Literal

import pytest
import timm
import torch
import torch.nn.functional as F
from ssl_vit.configs import FitConfig, ModelConfig, ResolvedModel, RunConfig
from ssl_vit.core import sums
from ssl_vit.core.files import sha256 as file_hash
from ssl_vit.core.masking import block_mask
from ssl_vit.core.randomness import make_key
from ssl_vit.exports.timm_folder import load_backbone
from ssl_vit.methods.beit import METHOD, BEiTConfig, BEiTRecipe, ResolvedBEiT
from ssl_vit.models.backbone import TokenBackbone
from ssl_vit.models.build import build_backbone
from ssl_vit.objectives.beit import BEiT
from ssl_vit.objectives.mae import normalise_targets, pixel_patches
from ssl_vit.objectives.words import FILE, fit_words, load_words, nearest, patches_of
from ssl_vit.runs.directory import RunDir
from ssl_vit.training.pretraining import pretrain
from ssl_vit.training.saving import kept_tensor
from ssl_vit.training.sharded_checkpoint import ShardedCheckpoints
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save


def test_words_of_separate_clusters_are_their_means() -> None:
    """Whatever the seed."""
    torch.manual_seed(0)
    centres = torch.tensor([[0.0, 0], [10, 0], [0, 10], [10, 10]], dtype=torch.float64)
    patches = (centres.repeat_interleave(50, dim=0) + 0.1 * torch.randn(200, 2, dtype=torch.float64))[
        torch.randperm(200)
    ]
    own = nearest(patches, centres)
    for seed in range(8):
        words = fit_words(patches, 4, seed)
        found = words[nearest(centres, words)]
        means = torch.stack([patches[own == k].mean(dim=0) for k in range(4)])
        assert (found - means).abs().max() <= 1e-12, seed


def test_words_are_a_fixed_point_and_named_by_the_seed() -> None:
    torch.manual_seed(1)
    patches = torch.randn(300, 6, dtype=torch.float64)
    words = fit_words(patches, 8, 3)
    assert torch.equal(words, fit_words(patches, 8, 3))
    assert not torch.equal(words, fit_words(patches, 8, 4))
    own = nearest(patches, words)
    by_hand = torch.cdist(patches, words).argmin(dim=1)
    assert torch.equal(own, by_hand)
    spread = (patches - words[own]).square().sum()
    start = patches[torch.randperm(300)[:8]]
    assert spread < (patches - start[nearest(patches, start)]).square().sum()


def test_fewer_patches_than_words() -> None:
    patches = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    words = fit_words(patches, 5, 0)
    assert words.shape == (5, 2)
    assert nearest(patches, words)[0] == nearest(patches, words)[2] != nearest(patches, words)[1]


@pytest.mark.parametrize(("grid", "hidden"), [((14, 14), 75), ((8, 8), 26), ((4, 4), 6), ((2, 2), 2), ((3, 7), 20)])
def test_blocks_hide_exactly_as_many_patches(grid: tuple[int, int], hidden: int) -> None:
    key = make_key(0, "mask", torch.arange(200))
    mask = block_mask(key, grid, hidden)
    patches = grid[0] * grid[1]
    both = torch.cat([mask.keep_ids, mask.mask_ids], dim=1).sort(dim=1).values
    assert torch.equal(both, torch.arange(patches).expand(200, -1))
    assert mask.mask_ids.shape[1] == hidden
    again = block_mask(make_key(0, "mask", torch.arange(100, 200)), grid, hidden)
    assert torch.equal(again.mask_ids, mask.mask_ids[100:])  # of the sample alone
    seen = torch.zeros(200, patches).scatter(1, mask.mask_ids, 1.0).mean(dim=0)
    assert seen.min() > 0  # every patch is hidden sometimes


def test_hidden_patches_stand_together() -> None:
    """Most neighbours of a hidden patch are hidden, too: of 75 of 196 drawn apart from each other, 38 % were."""
    mask = block_mask(make_key(0, "mask", torch.arange(500)), (14, 14), 75)
    cells = torch.zeros(500, 196).scatter(1, mask.mask_ids, 1.0).view(-1, 14, 14)
    beside = (cells[:, :, 1:] * cells[:, :, :-1]).sum() / cells[:, :, :-1].sum()
    assert beside > 0.7


@pytest.mark.parametrize("normalised", [False, True])
def test_the_loss_is_the_cross_entropy_of_hidden_words(normalised: bool) -> None:
    torch.manual_seed(0)
    net = build_backbone(ResolvedModel("vit_tiny_patch16_224", 16, 4, 24, 2, 2, "learnable", "mean"), 2)
    objective = BEiT(net, ResolvedBEiT(0.4, 7, normalised)).double()  # pyright: ignore[reportArgumentType]
    objective.words.normal_()
    images, hidden = torch.randn(3, 2, 16, 16).double(), torch.rand(3, 16).argsort(dim=1)[:, :6]
    loss, metrics = objective({"images": images, "mask_ids": hidden})
    patches = pixel_patches(images, 4)
    patches = normalise_targets(patches) if normalised else patches
    flags = torch.zeros(3, 16, dtype=torch.bool).scatter(1, hidden, True)
    wanted = torch.cdist(patches, objective.words).argmin(dim=2)
    logits = objective.head(objective.encode(images, flags).patches)
    assert (loss - F.cross_entropy(logits[flags], wanted[flags])).abs() <= 1e-12
    right = (logits.argmax(dim=2) == wanted)[flags].float().mean()
    assert float(metrics["words_right"]) == pytest.approx(float(right))


def test_a_run_keeps_its_words_and_says_so(tmp_path: Path) -> None:
    model, fit = ModelConfig(width=16, depth=1, heads=2), FitConfig(epochs=0.3, batch_size=64, log_every=1)
    asked = BEiTRecipe(run=RunConfig(str(tmp_path / "r")), model=model, fit=fit, beit=BEiTConfig(words=12))
    run = pretrain(METHOD, asked)
    losses = [json.loads(line)["loss"] for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0]
    words = load_words(run.path)
    assert words is not None and words.shape == (12, 4)
    assert len(words.unique(dim=0)) == 12
    about = json.loads((run.backbone / "config.json").read_text())["ssl_vit"]
    assert about["method"] == "beit"
    assert (about["words"]["count"], about["words"]["normalised"]) == (12, False)
    assert not [name for name in json.loads((run.backbone / "config.json").read_text())["model_args"] if "word" in name]
    assert pretrain(METHOD, asked).path == run.path
    assert torch.equal(load_words(run.path), words)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_words_are_exported_and_survive_the_loss_of_their_file(
    precision: Literal["fp32", "fp64"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt: list[BEiT] = []
    monkeypatch.setattr(BEiT, "after_step", lambda self, clock: learnt.append(self))
    model = ModelConfig(width=16, depth=1, heads=2)

    def run(epochs: float) -> RunDir:
        fit = FitConfig(epochs=epochs, batch_size=64, precision=precision)
        return pretrain(METHOD, BEiTRecipe(run=RunConfig(str(tmp_path / "r")), model=model, fit=fit))

    run(0.3)
    kept = (tmp_path / "r" / FILE).read_bytes()
    assert sums.read(tmp_path / "r") == {FILE: file_hash(tmp_path / "r" / FILE)}
    (tmp_path / "r" / FILE).unlink()
    monkeypatch.setattr("ssl_vit.objectives.beit.words_of_images", None)  # they are not found again
    folder = run(0.4).backbone
    assert (tmp_path / "r" / FILE).read_bytes() == kept
    words, objective = load_words(folder), learnt[-1].eval()
    assert words is not None and words.dtype == torch.float32
    images = torch.randn(5, 1, 8, 8, dtype=objective.words.dtype)
    exported = load_backbone(str(folder))
    assert isinstance(exported.backbone, TokenBackbone)
    patches = pixel_patches(images, exported.backbone.patch_size)
    about = exported.about["words"]
    found = nearest(patches_of(patches, about["normalised"]), words.to(images.dtype))
    assert torch.equal(found, objective.word_of(images)) and len(found.unique()) > 3
    assert about["hash"] == sha256(words.numpy().tobytes()).hexdigest()[:16]
    assert sums.read(folder)[FILE] == file_hash(folder / FILE)
    plain = timm.create_model(f"local-dir:{folder}", pretrained=True)
    assert plain.state_dict().keys() == exported.backbone.timm_state().keys()


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_words_of_a_checkpoint_in_parts(tmp_path: Path) -> None:
    words = torch.randn(4, 3)
    part, state = tmp_path / "step_000000002.part", {"objective.words": words, "objective.head": words + 1}
    save(state, storage_writer=FileSystemWriter(str(part)), no_dist=True)
    torch.save({"step": 2}, part / "rest.pt")
    ShardedCheckpoints(tmp_path, None, 1, main=True)._name(part, 2)
    found = kept_tensor(tmp_path, "words")
    assert found is not None and torch.equal(found, words)
    assert kept_tensor(tmp_path, "other") is None
    assert kept_tensor(tmp_path / "none", "words") is None
