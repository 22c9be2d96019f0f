"""Exports for other libraries, each loaded by that library and compared before it counts as done."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import timm
import torch
from jaxtyping import Float
from torch import Tensor, nn

from ssl_vit.configs import ExportRecipe
from ssl_vit.core import sums
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import write_atomically
from ssl_vit.exports.card import model_card, read_config
from ssl_vit.exports.classifier import load_classifier
from ssl_vit.exports.origin import without_places
from ssl_vit.exports.timm_folder import write_weights
from ssl_vit.released.starts import load_start
from ssl_vit.runs.networks import weights_hash

CLOSE, ROUNDED = 1e-5, 1e-2
"""Outputs of what was exported differ from the network's by at most this share of the largest, where its weights are
the same, and where they are rounded to half precision."""
_WIDE = ("dtype", "torch_dtype")
"""What tells transformers to compute in 32 bits: the first from version 4.56 on, the other before."""


class Format(NamedTuple):
    """A kind of export."""

    write: Callable[[nn.Module, Tensor, Path], None]
    """Adds files to a folder that timm loads already, for a model and a batch of images."""
    run: Callable[[Path, Tensor], Tensor]
    """What the other library makes of images, from the folder alone."""
    needs: tuple[str, ...] = ()
    """Packages beside those of this project, by the names they are imported by."""
    keeps: bool = True
    """Whether timm's weights stay in the folder."""


def export(cfg: ExportRecipe) -> Path:
    """What ``ssl-vit export`` does: a run in, a folder for another library out.

    Args:
        cfg: Names one network.

    Raises:
        UserError: Where it is not there, and as ``export_as`` and ``push``.
    """
    if cfg.classifier:
        trained = load_classifier(cfg.classifier)
        exported, expected = trained.exported, trained.net.eval()
    else:
        exported = load_start(cfg.backbone)
        expected = partial(exported.backbone.eval().forward_pooled, pool=exported.pool)
    run = exported.folder.parent if exported.folder.name == "classifier" and cfg.classifier else exported.place
    out = Path(cfg.out).expanduser() if cfg.out else run / f"export-{cfg.format}"
    folder, apart = export_as(cfg.format, exported.folder, out, expected, run, half=cfg.half, head=bool(cfg.classifier))
    close = f"this project's but for rounding ({apart:.0e})" if cfg.half else "this project's (1e-5)"
    print(f"{folder}: {cfg.format}, the same numbers as {close}; README.md says how to load it")
    if cfg.push:
        print(f"On the hub: {push(folder, cfg.push)}")
    return folder


def export_as(
    name: str,
    source: Path,
    out: Path,
    expected: Callable[[Float[Tensor, "B C H W"]], Float[Tensor, "B E"]],
    run: Path | None,
    *,
    half: bool = False,
    head: bool = True,
) -> tuple[Path, float]:
    """Writes a folder in one of ``FORMATS``; it appears whole and proven, or not at all.

    Args:
        name: Of the format.
        source: A folder that timm loads: a run's backbone or classifier.
        out: Where the folder goes; one that is there must be an export, and is replaced.
        expected: What this project makes of standardised images.
        run: The run whose options and results the model card tells.
        half: Whether weights are stored as 16-bit numbers.
        head: Whether a classifier that the network has is exported, too.

    Returns:
        ``out``, and by which share of the largest number its outputs differ.

    Raises:
        UserError: Where a package is missing, the folder cannot be written, or what was exported gives other numbers.
    """
    form = FORMATS[name]
    missing = [package for package in form.needs if find_spec(package) is None]
    if missing:
        raise UserError(
            f"--format {name} needs {' and '.join(missing)}; install what exports need: pip install 'ssl_vit[export]'"
        )
    _check_replaced(out, source)
    if half and not form.keeps:
        raise UserError(f"--half true is for the formats that hold weights alone (timm, hf), not for {name}")
    config = without_places(read_config(source))
    torch.manual_seed(0)
    images = torch.randn(3, *config["pretrained_cfg"]["input_size"])
    part = out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"--out {out} cannot be written ({error.strerror}); name another folder") from error
    try:
        shutil.copyfile(source / "model.safetensors", part / "model.safetensors")
        if not head:
            config = _without_head(config, part)
        write_atomically(part / "config.json", json.dumps(config, indent=1) + "\n")
        if half:
            _round_weights(part)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tracers and exporters: the comparison is what counts
            form.write(_from_timm(part), images[:2], part)
            found, wanted = form.run(part, images), expected(images)  # a batch of another size than it was made with
        apart = float((found - wanted).abs().max() / wanted.abs().max())
        if not apart <= (ROUNDED if half else CLOSE):
            raise UserError(
                f"--format {name}: what {name} makes of the export differs by {apart:.1e}; nothing was written"
            )
        card = model_card(config, form=name, run=run, weights=weights_hash(source), half=half)
        if not form.keeps:
            (part / "model.safetensors").unlink()
        sums.note(part, [path.name for path in part.iterdir()])  # not of the card, which is told results later
        write_atomically(part / "README.md", card)
        shutil.rmtree(out, ignore_errors=True)
        part.rename(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return out, apart


def _check_replaced(out: Path, source: Path) -> None:
    """Refuses to put an export in the place of anything but an earlier one: what is there will be gone.

    Raises:
        UserError: Names what would be lost.
    """
    if not out.name:
        raise UserError(f"--out {out} is no name of a folder to make or replace; name one")
    here, there = source.resolve(), out.resolve()
    if there == here or there in here.parents:
        raise UserError(f"--out {out} is or holds the network to export; name another folder")
    if not out.exists():
        return
    if not (out / "config.json").is_file():
        raise UserError(f"--out {out} is there and no export; name a folder that is not, or an earlier export")
    own = {"README.md", "config.json", "model.safetensors", sums.NAME, *sums.read(out)}
    other = sorted(path.name for path in out.iterdir() if path.name not in own)
    if other:
        raise UserError(
            f"--out {out} also holds {other[0]}{', ...' * (len(other) > 1)}, which no export wrote and which would be "
            "lost; name another folder"
        )


def push(folder: Path, name: str) -> str:
    """Sends an exported folder to the Hugging Face hub.

    Args:
        folder: As ``export_as`` wrote it, or a network's own; places on this machine are sent as their last names.
        name: OWNER/NAME.

    Returns:
        Its address.

    Raises:
        UserError: Without login or network, or where the hub refuses.
    """
    from huggingface_hub import HfApi

    try:
        api = HfApi()
        where = str(api.create_repo(name, exist_ok=True))
        with _for_others(folder) as sent:
            api.upload_folder(repo_id=name, folder_path=str(sent))
    except Exception as error:  # whatever the network, the login or the hub raise
        line = str(error).strip().partition("\n")[0]
        raise UserError(
            f"{name} was not sent: the hub could not be reached or refused ({line}); log in with `hf auth login`; what "
            f"to send is in {folder}"
        ) from error
    return where


@contextmanager
def _for_others(folder: Path) -> Generator[Path, None, None]:
    """The folder, or a copy of it for as long as it is sent, where its config.json tells of places on this machine."""
    config = read_config(folder)
    if (told := without_places(config)) == config:
        yield folder
        return
    with tempfile.TemporaryDirectory() as made:
        copied = Path(shutil.copytree(folder, Path(made) / folder.name))
        write_atomically(copied / "config.json", json.dumps(told, indent=1) + "\n")
        sums.note(copied, ["config.json"])
        yield copied


def _without_head(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Takes the classifier out of a folder's weights; returns the config.json of what is left."""
    names: list[str] | str = config["pretrained_cfg"].get("classifier") or "head"
    begins = tuple(f"{name}." for name in ([names] if isinstance(names, str) else names))
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    write_weights(folder, {name: value for name, value in weights.items() if not name.startswith(begins)})
    kept = {key: value for key, value in config.items() if key != "label_names"}
    kept["model_args"] = {k: v for k, v in (config.get("model_args") or {}).items() if k != "num_classes"}
    kept["pretrained_cfg"] = config["pretrained_cfg"] | {"num_classes": 0}
    about = {key: value for key, value in (config.get("ssl_vit") or {}).items() if key != "classifier"}
    return kept | {"num_classes": 0} | ({"ssl_vit": about} if about else {})


def _round_weights(folder: Path) -> None:
    """To 16 bits; whole numbers stay. timm widens them where it loads them, transformers where config.json says so."""
    config = json.loads((folder / "config.json").read_text())
    write_atomically(folder / "config.json", json.dumps(config | dict.fromkeys(_WIDE, "float32"), indent=1) + "\n")
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    write_weights(folder, {name: w.half() if w.is_floating_point() else w for name, w in weights.items()})


def _from_timm(folder: Path) -> nn.Module:
    model: nn.Module = timm.create_model(f"local-dir:{folder}", pretrained=True)
    return model.eval()


def _nothing_more(model: nn.Module, images: Tensor, folder: Path) -> None:
    pass


def _run_timm(folder: Path, images: Tensor) -> Tensor:
    return _from_timm(folder)(images)


def _run_transformers(folder: Path, images: Tensor) -> Tensor:
    import transformers  # pyright: ignore[reportMissingImports] - the extra

    transformers.utils.logging.disable_progress_bar()
    answers = read_config(folder)["num_classes"]
    kind: Any = transformers.AutoModelForImageClassification if answers else transformers.AutoModel
    found = kind.from_pretrained(folder, local_files_only=True).eval()(images)
    return found.logits if answers else found.pooler_output


def _write_torchscript(model: nn.Module, images: Tensor, folder: Path) -> None:
    traced: Any = torch.jit.trace(model, images, check_trace=False)
    traced.save(str(folder / "model.pt"))


def _run_torchscript(folder: Path, images: Tensor) -> Tensor:
    with warnings.catch_warnings():  # torch tells of its successor, which other programs cannot load yet
        warnings.simplefilter("ignore", FutureWarning)
        return torch.jit.load(str(folder / "model.pt"))(images)


def _write_onnx(model: nn.Module, images: Tensor, folder: Path) -> None:
    batch: Any = torch.export.Dim("batch")
    program: Any = torch.onnx.export(
        model, (images,), dynamo=True, input_names=["images"], output_names=["outputs"],
        dynamic_shapes=({0: batch},), verbose=False,
    )  # fmt: skip
    program.save(str(folder / "model.onnx"))


def _run_onnx(folder: Path, images: Tensor) -> Tensor:
    import onnxruntime  # pyright: ignore[reportMissingImports] - the extra

    session = onnxruntime.InferenceSession(os.fspath(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


FORMATS = {
    "timm": Format(_nothing_more, _run_timm),
    "hf": Format(_nothing_more, _run_transformers, ("transformers",)),
    "onnx": Format(_write_onnx, _run_onnx, ("onnx", "onnxscript", "onnxruntime"), keeps=False),
    "torchscript": Format(_write_torchscript, _run_torchscript, keeps=False),
}
"""By the name that ``--format`` takes."""
