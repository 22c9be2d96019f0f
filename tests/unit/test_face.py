"""The functions of ``ssl_vit``: what is taken for images, how they stop, what is shown."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import huggingface_hub
import matplotlib
import numpy as np
import pytest
import ssl_vit
import torch
from jaxtyping import TypeCheckError
from matplotlib.figure import Figure
from PIL import Image
from ssl_vit import face
from ssl_vit.configs import ResolvedModel
from ssl_vit.configs.cli import from_options
from ssl_vit.core import started
from ssl_vit.core.errors import Stopped, UserError
from ssl_vit.data.scale import PixelScale
from ssl_vit.data.sources import objects
from ssl_vit.exports.timm_folder import export_backbone
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.models.build import build_backbone

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8)


@pytest.fixture(autouse=True)
def nothing_handed() -> Any:
    yield
    objects._handed.clear()


def test_images_are_a_path_options_or_an_object(tmp_path: Path) -> None:
    assert face._images("data", None) == {}
    assert face._images("data", "cells") == face._images("data", Path("cells")) == {"data.path": "cells"}
    given = {"path": tmp_path, "target": "class", "group": None}
    assert face._images("eval.data", given) == {
        "eval.data.path": str(tmp_path), "eval.data.target": "class", "eval.data.group": None
    }  # fmt: skip
    name = face._images("data", PIXELS)["data.path"]
    assert name.startswith("python:ndarray-") and face._images("data", {"path": PIXELS}) == {"data.path": name}
    assert face._images("data", {"path": PIXELS, "workers": 2}) == {"data.path": name, "data.workers": 2}
    assert face._images("data", {"train": PIXELS, "test": PIXELS[:3]})["data.path"].startswith("python:ndarray-")
    stacked = {"path": PIXELS[:, None], "channels": "first"}
    assert set(face._images("data", stacked)) == {"data.path"}


def test_options_of_objects_are_checked_as_all_are() -> None:
    with pytest.raises(UserError, match=r"--data\.channels"):
        ssl_vit.pretrain("mae", data={"path": "digits", "channels": "first"})
    with pytest.raises(UserError, match="stream"):
        ssl_vit.pretrain("mae", data={"path": PIXELS, "stream": True})


@pytest.mark.parametrize("options", [{"data": PIXELS}, {"data": "digits", "labels": {"path": PIXELS}}])
def test_a_verdict_is_refused_an_object(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="a verdict starts processes, and they cannot read an object of this one"):
        ssl_vit.verdict(**options)


@pytest.mark.parametrize(("status", "raised"), [(130, Stopped), (75, SystemExit), (1, SystemExit)])
def test_ctrl_c_is_no_end_of_the_process(
    status: int, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def main(config: object) -> None:
        raise SystemExit(status)

    module = face.module_of("recipes/mae.py")
    monkeypatch.setattr(face, "module_of", lambda script: module)
    monkeypatch.setattr(module, "main", main)
    monkeypatch.setattr(face, "options_of", lambda module: face.method_named("mae").recipe)
    with pytest.raises(raised) as found:
        ssl_vit.pretrain("mae")
    assert raised is not Stopped or isinstance(found.value, KeyboardInterrupt)


@pytest.mark.parametrize(("chosen", "inside"), [(None, 1), ("2", 3)])
def test_a_function_chooses_threads_as_a_command_and_gives_them_back(
    chosen: str | None, inside: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if chosen is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", chosen)
    torch.set_num_threads(3)
    try:
        with pytest.raises(ValueError, match="inside"), face._as_a_command():
            assert (torch.get_num_threads(), started.threads_open) == (inside, chosen is None)
            raise ValueError("inside")
        assert (torch.get_num_threads(), started.threads_open) == (3, False)
    finally:
        torch.set_num_threads(before)


def small_run(run: Path) -> Path:
    torch.manual_seed(0)
    backbone = build_backbone(ResolvedModel("vit_small_patch16_224", 8, 4, 32, 1, 2, "sincos", "mean"), 1)
    export_backbone(backbone, run / "backbone", PixelScale((0.5,), (0.2,), 8), "mean", {"objective": "MAE"})
    return run


def test_a_function_leaves_the_process_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    network = ssl_vit.load_backbone(small_run(tmp_path / "run"))
    network.backbone.train()
    torch.manual_seed(5)
    drawn = torch.rand(3)
    torch.manual_seed(5)
    how = torch.backends.mkldnn.matmul.fp32_precision
    ssl_vit.embed(network, PIXELS)
    assert torch.equal(torch.rand(3), drawn), "a loop that calls it goes on with its own numbers"
    assert network.backbone.training
    assert torch.backends.mkldnn.matmul.fp32_precision == how


def test_what_is_no_network_is_told_in_a_line(tmp_path: Path) -> None:
    network = ssl_vit.load_backbone(small_run(tmp_path / "run"))
    for given, words in ((network, "not by an Exported"), (None, "not by a NoneType")):
        with pytest.raises(UserError, match=f"a network is named by what pretrain returned.*{words}"):
            face._place(given)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ssl_vit.pretrain(None), "a method is named by a text"),
        (lambda: ssl_vit.pretrain("mae", out=5), "out names a folder"),
        (lambda: ssl_vit.push_to_hub(5, "a/b"), "a network is named by what pretrain returned"),
        (lambda: ssl_vit.show(None), r"show draws what embed returned"),
    ],
)
def test_wrong_kinds_are_told_in_a_line(call: Callable[[], Any], words: str) -> None:
    with pytest.raises((UserError, TypeCheckError), match=f"{words}|violates type hint|Type-check error"):
        call()


@pytest.mark.parametrize("options", [{"data.path": "one"}, {"run": {"dir": "b"}}, {"run.dir": "b"}])
def test_what_is_given_twice_is_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"(data\.path|run\.dir) is given twice"):
        ssl_vit.pretrain("mae", data="digits", out=tmp_path, **options)
    with pytest.raises(UserError, match=r"eval\.labels is given twice"):
        ssl_vit.evaluate(tmp_path, "knn", labels=20, eval={"labels": 50})
    with pytest.raises(UserError, match=r"verdict\.budget is given twice"):
        ssl_vit.verdict(budget="1h", **{"verdict.budget": "2h"})


def test_options_may_be_paths_and_numbers_of_numpy() -> None:
    made = from_options(MAERecipe, {"run": {"dir": Path("/a b/c")}, "fit": {"epochs": np.float64(3)},
                                    "seed": np.int64(7), "data.path": Path("images")})  # fmt: skip
    assert (made.run.dir, made.fit.epochs, made.seed, made.data.path) == ("/a b/c", 3.0, 7, "images")


def test_an_image_without_numbers_has_no_label() -> None:
    assert face._rows([[1.0, None, 3.0], [2.0, None, None]]) == [(1.0, 2.0), None, (3.0, None)]


def test_notebooks_show_mistakes_as_one_line() -> None:
    assert UserError("no such thing")._render_traceback_() == ["error: no such thing"]
    assert Stopped("it is saved")._render_traceback_() == ["stopped: it is saved"]


@pytest.mark.parametrize(("labels", "words"), [
    (None, []),
    (["a", "b"] * 10, ["a", "b"]),
    (["a", None] * 10, ["no label", "a"]),
    ([f"class {i}" for i in range(20)], ["11 other classes"]),
    ([0.5, None] * 10, []),
    (["$x_1$", "<b>"] * 10, ["$x_1$", "<b>"]),
    ([(0.5, 1.0)] * 20, []), ([(0.5, 1.0), None] * 10, []),
])  # fmt: skip
def test_a_map_has_a_point_per_image(labels: list[Any] | None, words: list[str]) -> None:
    before = matplotlib.get_backend()
    vectors = np.random.default_rng(1).normal(size=(20, 6)).astype(np.float32)
    found = ssl_vit.Embedding(vectors, [str(i) for i in range(20)], (), labels)
    figure = ssl_vit.show(found, title="Some $digits_")
    assert isinstance(figure, Figure) and matplotlib.get_backend() == before
    axes = figure.axes[0]
    assert sum(len(np.asarray(points.get_offsets())) for points in axes.collections) == 20
    legend = axes.get_legend()
    shown = [] if legend is None else [text.get_text() for text in legend.get_texts()]
    assert shown[: len(words)] == words
    picture = Image.open(io.BytesIO(figure._repr_png_()))  # pyright: ignore[reportAttributeAccessIssue]
    assert picture.size[0] > 400


class Hub:
    """What ``huggingface_hub.HfApi`` is asked for."""

    sent: dict[str, list[str]]
    places: ClassVar[dict[str, Any]] = {}

    def create_repo(self, name: str, exist_ok: bool) -> str:
        if "/" not in name:
            raise ValueError("no owner\nand more")
        return f"https://hub/{name}"

    def upload_folder(self, repo_id: str, folder_path: str) -> None:
        Hub.places[repo_id] = json.loads((Path(folder_path) / "config.json").read_text())["ssl_vit"].get("data")
        Hub.sent[repo_id] = sorted(path.name for path in Path(folder_path).iterdir())


def test_a_network_is_sent_with_its_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    monkeypatch.setattr(Hub, "sent", {}, raising=False)
    run = small_run(tmp_path / "run")
    files = ["README.md", "SHA256SUMS", "config.json", "model.safetensors"]
    assert ssl_vit.push_to_hub(run / "backbone", "me/as_it_is") == "https://hub/me/as_it_is"
    assert not (run / "export-timm").exists()
    assert ssl_vit.push_to_hub(ssl_vit.Run(run, run / "backbone", {}), "me/run") == "https://hub/me/run"
    ssl_vit.push_to_hub(str(run), "me/script", format="torchscript", out=tmp_path / "out")
    assert Hub.sent == {
        "me/as_it_is": files, "me/run": files, "me/script": ["README.md", "SHA256SUMS", "config.json", "model.pt"]
    }  # fmt: skip
    assert (run / "export-timm").is_dir() and (tmp_path / "out" / "model.pt").is_file()
    config = json.loads((run / "backbone" / "config.json").read_text())
    config["ssl_vit"]["data"] = {"path": "/home/somebody/cells"}
    (run / "backbone" / "config.json").write_text(json.dumps(config))
    ssl_vit.push_to_hub(run / "backbone", "me/as_it_is")
    assert Hub.places["me/as_it_is"] == {"path": "cells"} and Hub.sent["me/as_it_is"] == files
    assert json.loads((run / "backbone" / "config.json").read_text()) == config
    with pytest.raises(UserError, match=r"nobody was not sent: .*\(no owner\); log in with `hf auth login`"):
        ssl_vit.push_to_hub(run / "backbone", "nobody")
    with pytest.raises(UserError, match="does not exist"):
        ssl_vit.push_to_hub(tmp_path / "nowhere", "me/x")
