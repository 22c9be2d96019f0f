"""The project as Python functions: what the commands do, with paths and numbers returned.

Options are those of the command line, checked by the same parser: in groups (``fit={"epochs": 5}``) or with dotted
names (``**{"fit.epochs": 5}``). A mistake is a ``UserError`` of one line. Each function works in this process; for
several there is ``ssl-vit NAME --processes N``. A script that calls ``verdict`` needs ``if __name__ == "__main__":``,
because the verdict starts processes that read the script again.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from ssl_vit.configs import OBJECT
from ssl_vit.configs.cli import from_options
from ssl_vit.configs.protocols import PROTOCOLS
from ssl_vit.core import signals, slurm, started
from ssl_vit.core.errors import Stopped, UserError, article, did_you_mean
from ssl_vit.core.reading import json_lines
from ssl_vit.core.started import module_of, options_of, scripts
from ssl_vit.methods import method_named
from ssl_vit.runs.disk import disk_told
from ssl_vit.runs.lock import holding
from ssl_vit.runs.networks import answers
from ssl_vit.script import check_values

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float
    from matplotlib.figure import Figure

    from ssl_vit.evaluation.judging import Evaluated
    from ssl_vit.exports.timm_folder import Exported
    from ssl_vit.runs.directory import RunDir

_ON_LABELS = ("supervised", "taught")
"""What is trained like a method, on labels."""
Source = Any
"""Images: what ``--data.path`` takes, or an object: a ``torch.utils.data.Dataset``, a ``datasets.Dataset``, a list of
Pillow's images, an array of pixels, or several of them by split ({"train": one, "test": other}). Options of that group
go with either: {"path": "cells.parquet", "target": "size"}, {"path": dataset, "image_column": "photo"}."""


@dataclass(frozen=True)
class Run:
    """What training left behind."""

    path: Path
    """The run's directory."""
    backbone: Path
    """The exported network: ``timm.create_model(f"local-dir:{run.backbone}", pretrained=True)``."""
    metrics: dict[str, float]
    """The last line of metrics.jsonl: step, epoch, loss, learning rate."""


@dataclass(frozen=True)
class Evaluation:
    """What a backbone is worth by one protocol."""

    path: Path
    """The result file: protocol, data fingerprint, versions, commit and seed."""
    protocol: str
    """Its name in tables."""
    metric: str
    """What tables lead with: top1, balanced, average_precision, r2, ..."""
    value: float | None
    """The backbone's; None where the metric is not defined on these images."""
    rows: list[dict[str, Any]]
    """All metrics of the backbone, and of what it was compared with."""


@dataclass(frozen=True)
class Embedding:
    """One vector per image."""

    vectors: Float[np.ndarray, "n D"]
    names: list[str]
    """Where each image lies."""
    unreadable: tuple[str, ...]
    """Images that could not be read, and why; they have no vector."""
    labels: list[Any] | None = None
    """Of each image, None where it has none: the name of its class, its labels with semicolons between them, or its
    number (several numbers: a tuple)."""


@dataclass(frozen=True)
class VerdictResult:
    """Whether pre-training pays."""

    path: Path
    """The verdict's directory."""
    sentence: str
    """What to use with how many labels, with what to expect and its intervals."""
    beside: tuple[str, ...]
    """Whether pre-training pays, and what was cut short."""
    report: Path
    """The page with all numbers, costs, leaks and pictures."""


def pretrain(
    method: str = "mae",
    *,
    data: Source | None = None,
    out: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Run:
    """Trains a network on images, as ``ssl-vit METHOD`` does; a run that is there continues or is returned.

    Example: ``run = ssl_vit.pretrain("mae", data="my_images", fit={"epochs": 100}, seed=1)``

    Args:
        method: mae, dino, ... (labels are not read), or supervised, the labelled baseline, or taught, with a teacher.
        data: The images; default: scikit-learn's digits.
        out: The run's directory; default: below runs/.
        **options: Further options of the method.

    Raises:
        UserError: As the command does: for unknown methods and options, paths and data that cannot be used.
    """
    if not isinstance(method, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UserError(f"a method is named by a text, such as 'mae', not by {article(type(method).__name__)}")
    script = f"recipes/{method}.py" if method in _ON_LABELS else method_named(method, *_ON_LABELS).script
    left = _call(script, _with({**_images("data", data), **_folder(out)}, options))
    run: RunDir = getattr(left, "run", left)  # the baseline is judged, too
    return Run(run.path, run.backbone, json_lines(run.path / "metrics.jsonl").whole[-1])


def load_backbone(backbone: Run | str | os.PathLike[str]) -> Exported:
    """A pre-trained network, with what is needed to use it as it was trained.

    Example: ``m = ssl_vit.load_backbone(run); m.backbone.forward_pooled(m.preprocess("image.png"), pool=m.pool)``

    Args:
        backbone: What ``pretrain`` returned, or what ``--backbone`` takes: a run's directory, a folder or file of
            weights, a name of timm's.

    Returns:
        ``backbone`` (the module), ``scale`` (pixel statistics), ``pool``, ``size`` in pixels, ``about``, ``folder``,
        and ``preprocess(*paths)``, which reads image files of any kind that training reads.

    Raises:
        UserError: Where there is none.
    """
    from ssl_vit.released.starts import read_start

    return read_start(_place(backbone))


def embed(backbone: Run | Exported | str | os.PathLike[str], images: Source | None = None, **options: Any) -> Embedding:
    """One vector per image, cut and standardised as evaluation does it: what ``ssl-vit embed`` writes.

    Example: ``found = ssl_vit.embed(run, "new_images"); found.vectors[0], found.names[0]``

    Args:
        backbone: As for ``load_backbone``, or what it returned.
        images: Where they are, with labels or without; all splits are read. Default: those of the run.
        **options: How vectors are computed: batch_size, precision, keep_features.

    Raises:
        UserError: For images of another kind than the network was built for, or more than 1 % that cannot be read.
    """
    from ssl_vit.configs import EmbedRecipe
    from ssl_vit.evaluation.embedding import embed_images
    from ssl_vit.exports.timm_folder import Exported
    from ssl_vit.training import launch

    exported = backbone if isinstance(backbone, Exported) else load_backbone(backbone)
    cfg = from_options(EmbedRecipe, {**_images("data", images), "embed": options})
    with _as_a_command():
        accelerator = launch.join("fp32")
        launch.use_cores(accelerator, exported.size)
        network = exported.backbone
        trained, place = network.training, next(network.parameters()).device
        try:
            found = embed_images(exported, cfg.data, cfg.embed, device=accelerator.device)
        finally:
            network.to(place).train(trained)  # a caller's own, perhaps between two epochs
    columns = [] if found.known is None else list(found.known.columns().values())
    labels = None if not columns else columns[0] if len(columns) == 1 else _rows(columns)
    return Embedding(found.x, found.names(), found.unreadable, labels)


def evaluate(
    backbone: Run | str | os.PathLike[str],
    protocol: str = "knn",
    *,
    data: Source | None = None,
    labels: int | None = None,
    out: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Evaluation:
    """What a backbone is worth on labelled images, as ``ssl-vit knn|linear-probe|finetune --backbone RUN`` says.

    Example: ``ssl_vit.evaluate(run, "logistic", labels=100).value``

    Args:
        backbone: What ``pretrain`` returned, or a run's directory.
        protocol: knn, a linear probe (cached, logistic, aug-mae, aug-dino, attentive) or finetune.
        data: The labelled images; default: those of the run.
        labels: How many training labels to use; default: all.
        out: The directory of results; default: the run's own.
        **options: Further options of the protocol.

    Raises:
        UserError: As the command does.
    """
    names = [name for name, one in PROTOCOLS.items() if one.run]
    if protocol not in names:
        close = did_you_mean(protocol, names)
        raise UserError(f"there is no protocol {protocol}; protocols are {', '.join(names)}{close}")
    given = {"backbone": _place(backbone), **_images("eval.data", data), **_folder(out)}
    given |= {} if labels is None else {"eval.labels": labels}
    script = scripts().get(protocol)
    if script is None:
        script, given["linear.protocol"] = "eval/linear_probe.py", protocol
    found: Evaluated = _call(script, _with(given, options))
    leading = next((row for row in found.rows if row.get("headline")), found.rows[0])
    return Evaluation(found.path, PROTOCOLS[protocol].method, found.metric, leading[found.metric], found.rows)


def show(found: Embedding, title: str | None = None) -> Figure:
    """A map of images: a point for each, near others that look alike to the network; colours are labels.

    Example: ``ssl_vit.show(ssl_vit.embed(run)).savefig("map.png")``; a notebook shows what its cell ends with.

    Args:
        found: What ``embed`` returned.
        title: Above the map; default: how many images, and how they were arranged (UMAP where it is installed, else
            t-SNE).
    """
    from ssl_vit.atlas.figure import map_of

    if not isinstance(found, Embedding):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UserError(f"show draws what embed returned, as in show(embed(run)), not {article(type(found).__name__)}")
    return map_of(found.vectors, found.labels, title)


def push_to_hub(
    network: Run | str | os.PathLike[str],
    name: str,
    *,
    format: Literal["timm", "hf", "onnx", "torchscript"] | None = None,
    out: str | os.PathLike[str] | None = None,
) -> str:
    """Sends a network with its model card to the Hugging Face hub, as ``ssl-vit export --push OWNER/NAME`` does.

    Example: ``ssl_vit.push_to_hub(run, "owner/cells-mae", format="hf")``, after ``hf auth login``.

    Args:
        network: What ``pretrain`` returned or a run's directory, whose backbone is sent; or RUN/classifier, or a folder
            that ``ssl-vit export`` wrote.
        name: OWNER/NAME on the hub; made where it is not there.
        format: Exports for this library first, and compares; default: timm for a run, and a folder is sent as it is.
        out: The folder to export to; default: RUN/export-FORMAT.

    Returns:
        Its address.

    Raises:
        UserError: As the command does: without a login or network, or where there is no network to send.
    """
    from ssl_vit.exports.formats import push

    place = Path(os.fspath(network.path) if isinstance(network, Run) else _place(network)).expanduser()
    if format is None and out is None and (place / "config.json").is_file():
        return push(place, name)
    kind = "classifier" if answers(place) else "backbone"
    options = {kind: str(place), "format": format or "timm"} | ({} if out is None else {"out": os.fspath(out)})
    return push(_call("eval/export.py", options), name)


def verdict(
    *,
    data: Source | None = None,
    labels: Source | None = None,
    budget: str | None = None,
    out: str | os.PathLike[str] | None = None,
    **options: Any,
) -> VerdictResult:
    """What to use on these images with how many labels, and whether pre-training pays: ``ssl-vit verdict``.

    Example: ``ssl_vit.verdict(data="pool", labels="labelled", budget="2h").sentence``

    Args:
        data: Images to pre-train on; default: scikit-learn's digits.
        labels: Labelled images; default: the same.
        budget: How long it may take, such as 30m or 2h.
        out: The verdict's directory; default: below runs/.
        **options: Further options.

    Raises:
        UserError: As the command does.
    """
    given = {**_images("data", data), **_images("eval.data", labels), **_folder(out)}
    given |= {} if budget is None else {"verdict.budget": budget}
    if any(str(path).startswith(OBJECT) for path in (given.get("data.path"), given.get("eval.data.path"))):
        raise UserError(
            "a verdict starts processes, and they cannot read an object of this one; give it images in files (what "
            "datasets' save_to_disk wrote serves, too)"
        )
    found = _call("eval/verdict.py", _with(given, options))
    if found is None:
        raise UserError("--verdict.plan_only prints the plan and makes no verdict; leave it out")
    folder, page = found
    return VerdictResult(folder, page.sentence, page.beside, folder / "report.html")


def _call(script: str, options: Mapping[str, Any]) -> Any:
    """What a script's ``main`` returns."""
    module = module_of(script)
    config = from_options(options_of(module), options)
    if getattr(config, "dry_run", False):
        raise UserError("dry_run prints and returns nothing: ssl-vit NAME --dry_run does that")
    check_values(config)
    with _as_a_command():
        return module.main(config)


@contextmanager
def _as_a_command() -> Generator[None, None, None]:
    """Inside, precision, notices, threads and locks are as in a command of its own; they are this process's again then.

    So are torch's random numbers: a loop that calls a function goes on with its own.

    Raises:
        UserError: In one of several processes: one alone would return.
        Stopped: Where Ctrl-C ended what was done inside.
    """
    if (not slurm.in_batch_script() and slurm.task()) or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("the functions of ssl_vit work in one process; for several there is ssl-vit NAME --processes N")
    import torch

    from ssl_vit.training.launch import forget_what_was
    from ssl_vit.training.products import as_they_were

    forget_what_was()
    threads, started.threads_open = torch.get_num_threads(), "OMP_NUM_THREADS" not in os.environ
    if started.threads_open:
        torch.set_num_threads(1)  # as the command begins; where images are large enough, it takes all cores
    try:
        devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        with torch.random.fork_rng(devices), as_they_were(), holding(), disk_told():
            yield
    except SystemExit as stopped:
        if stopped.code != signals.status_of(signal.SIGINT):
            raise
        raise Stopped("what was done is saved, and the same call continues") from None
    finally:
        torch.set_num_threads(threads)
        started.threads_open = False


def _images(group: str, given: Source | None) -> dict[str, Any]:
    """Options that say where images are; an object gets a name."""
    if given is None:
        return {}
    options: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {"path": given}
    if "path" not in options and not any(isinstance(one, _PLAIN) for one in options.values()):
        options = {"path": given}  # data sets by split
    path = options.get("path")
    if isinstance(path, os.PathLike):
        options["path"] = os.fspath(path)
    elif path is not None and not isinstance(path, str):
        from ssl_vit.data.sources.objects import handed

        options["path"] = handed(path, options.pop("channels", None))
    return {f"{group}.{name}": value for name, value in options.items()}


_PLAIN = (str, bool, int, float, type(None))
"""What options are, and data sets are not."""


def _folder(out: str | os.PathLike[str] | None) -> dict[str, Any]:
    if out is None:
        return {}
    if not isinstance(out, (str, os.PathLike)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UserError(f"out names a folder, and {article(type(out).__name__)} is none")
    return {"run.dir": os.fspath(out)}


def _with(given: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """What arguments of a function say, and its further options; UserError for what both say."""
    for name in _dotted(options):
        if name in given:
            raise UserError(f"{name} is given twice, by an argument of the function and as an option; leave one out")
    return {**given, **options}


def _dotted(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        yield name
        if isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in _dotted(cast("Mapping[str, Any]", value)))


def _rows(columns: Sequence[Sequence[Any]]) -> list[Any]:
    """The labels of every image together; None of one that has none."""
    return [None if all(one is None for one in row) else row for row in zip(*columns, strict=True)]


def _place(backbone: Any) -> str:
    """What names a network, as text; UserError for anything else than what is annotated where it is given."""
    if isinstance(backbone, Run):
        return str(backbone.backbone)
    if not isinstance(backbone, (str, os.PathLike)):
        raise UserError(
            "a network is named by what pretrain returned, a run's directory, a folder or file of weights, or a name "
            f"of timm's, not by {article(type(backbone).__name__)}"
        )
    return os.fspath(backbone)
