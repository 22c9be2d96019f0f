"""What other devices would refuse, found on a CPU: double precision (Apple's MPS has none) and CUDA-only calls."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from ssl_vit.configs import (
    DataConfig,
    LabelledDataConfig,
    ResolvedAugment,
    ResolvedCrops,
    ResolvedFit,
    ResolvedModel,
    ResolvedOptim,
)
from ssl_vit.configs.presets import PRESETS
from ssl_vit.core.errors import UserError
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.loader import Batch, Loader
from ssl_vit.data.scale import PixelScale, measure_scale
from ssl_vit.data.sources.opening import Labelled, open_labelled
from ssl_vit.data.targets import TargetScale
from ssl_vit.evaluation.features import backbone_extractor, extract_features, pixel_extractor
from ssl_vit.evaluation.knn import knn_scores
from ssl_vit.evaluation.labelled_run import predict
from ssl_vit.exports.classifier import Labelling, TrainedClassifier
from ssl_vit.exports.timm_folder import Exported
from ssl_vit.figures.reconstructions import save_reconstructions
from ssl_vit.methods.beit import ResolvedBEiT
from ssl_vit.methods.dino import ResolvedDINO
from ssl_vit.methods.distill import DistillConfig
from ssl_vit.methods.lejepa import ResolvedLeJEPA
from ssl_vit.methods.mae import MAERecipe, ResolvedMAE, resolve
from ssl_vit.methods.method import Facts
from ssl_vit.methods.supervised import ResolvedSupervised
from ssl_vit.methods.taught import TaughtConfig
from ssl_vit.models.build import ModelFacts, build_backbone
from ssl_vit.models.heads import Classifier
from ssl_vit.models.stochastic_depth import linear_rates
from ssl_vit.models.vit import ViTBackbone
from ssl_vit.objectives.base import Clock, Objective
from ssl_vit.objectives.beit import BEiT, beit_view
from ssl_vit.objectives.diet import DIET, diet_view
from ssl_vit.objectives.dino import DINO
from ssl_vit.objectives.distill import Distillation, distill_view
from ssl_vit.objectives.lejepa import LeJEPA
from ssl_vit.objectives.mae import MAE, mae_view
from ssl_vit.objectives.probe import AttentiveHead, FrozenProbe, linear_head, probe_view
from ssl_vit.objectives.simmim import SimMIM, simmim_view
from ssl_vit.objectives.supervised import Supervised, supervised_view
from ssl_vit.objectives.taught import Taught, taught_view
from ssl_vit.runs.directory import RunDir
from ssl_vit.training import joining, launch, loop
from ssl_vit.training.stepping import Stepper
from ssl_vit.views.multicrop import multicrop_view
from ssl_vit.views.training import View
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ROOT = Path(__file__).resolve().parents[2]

# --- no double precision -------------------------------------------------------------------------------------------

_DOUBLE = (torch.float64, torch.complex128)
_BORN = torch.ops.aten.lift_fresh.default  # part of torch.from_numpy
_SENT = torch.ops.aten._to_copy.default


def _check(func: Any, seen: Any) -> None:
    wrong = [x for x in tree_leaves(seen) if isinstance(x, Tensor) and x.dtype in _DOUBLE]
    assert not wrong, f"{func} on {wrong[0].dtype}{tuple(wrong[0].shape)}: MPS has no double precision"


class _Operations(TorchDispatchMode):
    """No operation gives or takes a double, but a table of the host may come in as another type."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is not _BORN:
            _check(func, out if func is _SENT else (out, args, kwargs))
        return out


class _Calls(TorchFunctionMode):
    """No call returns a double, but ``from_numpy``: where a CPU has nothing to do, ``to(device)`` is no operation."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func not in (torch.from_numpy, _BORN):
            _check(func, out)
        return out


@contextmanager
def no_double() -> Iterator[None]:
    """Fails where MPS would: it refuses to hold a tensor of double precision.

    What is left allowed never reaches the device: a NumPy table that is born double and sent in single precision.
    """
    with _Operations(), _Calls():
        yield


def model(size: int, positions: Any = "sincos") -> ViTBackbone:
    torch.manual_seed(0)
    return build_backbone(ResolvedModel("vit_tiny_patch16_224", size, size // 4, 16, 2, 2, positions, "mean"), 1)


PLAIN = ResolvedAugment(crop_scale=(1.0, 1.0), flip=False, policy="none", erasing=0.0)
RICH = ResolvedAugment(crop_scale=(0.3, 1.0), flip=True, policy="randaugment", erasing=0.5)
LOSS = ResolvedSupervised("cls", 0.1, 0.0, 0.0, 0.0, 0.0)
RICH_LOSS = ResolvedSupervised("mean_prenorm", 0.1, 0.8, 1.0, 0.2, 0.9, 8)


def mae(scale: PixelScale, size: int, augment: ResolvedAugment, positions: str) -> tuple[Objective, View]:
    objective = MAE(model(size, positions), ResolvedMAE(0.5, True, 16, 1, 2), freeze_positions=positions == "sincos")
    return objective, mae_view(scale, augment, size=size, patches=16, kept=8, dtype=torch.float32)


def supervised(
    scale: PixelScale, size: int, augment: ResolvedAugment, loss: ResolvedSupervised, positions: str = "learnable"
) -> tuple[Objective, View]:
    rates = linear_rates(2, loss.drop_path)
    view = supervised_view(scale, augment, loss, size=size, drop_rates=rates, classes=10, dtype=torch.float32)
    return Supervised(model(size, positions), 10, loss), view


def of_kind(scale: PixelScale, kind: Any) -> tuple[Objective, View]:
    outputs = 1 if kind == "regression" else 10
    view = supervised_view(
        scale, RICH, RICH_LOSS, size=20, drop_rates=linear_rates(2, RICH_LOSS.drop_path),
        classes=outputs, kind=kind, dtype=torch.float32,
    )  # fmt: skip
    return Supervised(model(20), outputs, RICH_LOSS, kind), view


def probe(scale: PixelScale, head: Any, reads: Any) -> tuple[Objective, View]:
    return FrozenProbe(model(8), head, reads=reads, kind="class"), probe_view(scale, PLAIN, size=8, dtype=torch.float32)


CROPS = ResolvedCrops(
    (0.4, 1.0), (0.05, 0.4), 2, 10, flip=True, jitter=1.0, blur=(1.0, 0.1, 0.5), blur_sigma=(0.1, 2.0), solarise=0.2
)


def simmim(scale: PixelScale) -> tuple[Objective, View]:
    return SimMIM(model(20)), simmim_view(scale, RICH, size=20, side=5, kept=6, dtype=torch.float32)


def lejepa(scale: PixelScale) -> tuple[Objective, View]:
    cfg = ResolvedLeJEPA(out_dim=8, head_hidden=16, head_layers=2, slices=32, drop_path=0.1)
    objective = LeJEPA(model(20), cfg, pool="cls", seed=3)
    return objective, multicrop_view(scale, CROPS, size=20, drop_rates=linear_rates(2, 0.1), dtype=torch.float32)


def dino(scale: PixelScale, centring: Any) -> tuple[Objective, View]:
    cfg = ResolvedDINO(out_dim=16, head_hidden=16, head_bottleneck=8, teacher_temp=0.07, warmup_teacher_temp=0.04,
                       teacher_warmup=0.5, centring=centring, check_steps=1, on_collapse="warn",
                       drop_path=0.0)  # fmt: skip
    view = multicrop_view(scale, CROPS, size=20, drop_rates=linear_rates(2, 0.1), dtype=torch.float32)
    return DINO(model(20), cfg, pool="cls", batch_size=16), view


def diet(scale: PixelScale) -> tuple[Objective, View]:
    augment = ResolvedAugment(crop_scale=(0.3, 1.0), flip=True, policy="jitter", erasing=0.5)
    objective = DIET(model(20), classes=32, smoothing=0.8, pool="cls")
    return objective, diet_view(scale, augment, size=20, classes=32, dtype=torch.float32)


def distill(scale: PixelScale) -> tuple[Objective, View]:
    teacher = Exported(model(12), PixelScale((0.4,), (0.3,), 8), "mean", 12, {}, "", Path())
    objective = Distillation(model(20), teacher.backbone, DistillConfig(), pool="cls", taught_pool="mean")
    return objective, distill_view(scale, RICH, teacher, size=20, dtype=torch.float32)


def beit(scale: PixelScale) -> tuple[Objective, View]:
    objective = BEiT(model(20), ResolvedBEiT(0.4, 6, True))
    objective.words.normal_()
    return objective, beit_view(scale, RICH, size=20, grid=(4, 4), hidden=6, dtype=torch.float32)


def taught(scale: PixelScale) -> tuple[Objective, View]:
    net = model(12)
    exported = Exported(net, PixelScale((0.4,), (0.3,), 8), "mean", 12, {}, "", Path())
    teacher = TrainedClassifier(
        Classifier(net, 10, pool="mean"), exported, Labelling("class", tuple("abcdefghij"), None)
    )
    loss = ResolvedSupervised("mean", 0.1, 0.8, 1.0, 0.2, 0.9)
    objective = Taught(model(20), 10, loss, TaughtConfig("RUN", token_weight=0.5), teacher, torch.arange(10))
    view = supervised_view(
        scale, RICH, loss, size=20, drop_rates=linear_rates(2, loss.drop_path), classes=10, dtype=torch.float32
    )
    return objective, taught_view(view, scale, teacher, size=20)


CASES: dict[str, tuple[int, Callable[[PixelScale], tuple[Objective, View]]]] = {
    "mae": (8, lambda scale: mae(scale, 8, PLAIN, "sincos")),
    "mae-augmented": (20, lambda scale: mae(scale, 20, RICH, "factorised")),
    "supervised": (8, lambda scale: supervised(scale, 8, PLAIN, LOSS)),
    "supervised-augmented": (20, lambda scale: supervised(scale, 20, RICH, RICH_LOSS)),
    "supervised-without-positions": (8, lambda scale: supervised(scale, 8, PLAIN, LOSS, "none")),
    "multilabel": (20, lambda scale: of_kind(scale, "multilabel")),
    "regression": (20, lambda scale: of_kind(scale, "regression")),
    "dino": (20, lambda scale: dino(scale, "mean")),
    "dino-sinkhorn": (20, lambda scale: dino(scale, "sinkhorn")),
    "simmim": (20, simmim),
    "lejepa": (20, lejepa),
    "diet": (20, diet),
    "distill": (20, distill),
    "beit": (20, beit),
    "taught": (20, taught),
    "linear-aug": (8, lambda scale: probe(scale, linear_head(16, 10, standardise=True), "cls")),
    "attentive": (8, lambda scale: probe(scale, AttentiveHead(16, 10, 2), "tokens")),
}
"""One entry per objective and kind of view: side of its input, and how to make it."""

FIT = ResolvedFit(
    epochs=2.0, batch_size=16, micro_batch=8, precision="fp32", log_every=1, clip_grad=1.0, clip_each=3.0, min_steps=0
)


@pytest.fixture(scope="module")
def digits() -> Labelled:
    found = open_labelled(DataConfig(), LabelledDataConfig())
    return found._replace(train=found.train.subset(np.arange(32)), test=found.test.subset(np.arange(12)))


def labelled_as(images: ImageSet, kind: str) -> ImageSet:
    """The digits with labels of another kind."""
    assert images.labels is not None
    if kind == "multilabel":
        return replace(images, labels=np.eye(10)[images.labels], kind="multilabel")
    if kind == "regression":
        numbers = images.labels[:, None].astype(np.float64)
        return replace(images, labels=numbers, classes=("digit",), kind="regression").standardised(
            TargetScale((4.5,), (2.9,))
        )
    return images


def fit(objective: Objective, view: View, loader: Loader, path: Path, cfg: ResolvedFit = FIT) -> None:
    path.mkdir(exist_ok=True)
    optim = ResolvedOptim(lr=1e-3, layer_decay=0.9, weight_decay_end=0.4, base_lr=1e-3)
    run = RunDir(path, True)
    loop.fit(objective, loader, view, fit=cfg, optim=optim, run=run, accelerator=launch.join("fp32"), seed=3)


@pytest.mark.parametrize("name", CASES)
def test_training_and_judging_need_no_double_precision(name: str, digits: Labelled, tmp_path: Path) -> None:
    size, maker = CASES[name]
    digits = digits._replace(train=labelled_as(digits.train, name), test=labelled_as(digits.test, name))
    device = torch.device("cpu")
    scale = measure_scale(digits.train)
    with no_double():
        loader = Loader(digits.train, batch_size=16, micro_batch=8, seed=3, device=device)
    objective, view = maker(scale)  # made on the host, where the sine-cosine table is double at first
    with no_double():
        fit(objective, view, loader, tmp_path)
        fit(objective, view, loader, tmp_path, replace(FIT, epochs=3.0))  # continues from a checkpoint
        backbone = objective.exported()
        for extract in (
            backbone_extractor(backbone, scale, size=size, pool="mean", device=device),
            backbone_extractor(backbone, scale, size=size * 2, pool="cls", device=device),  # resampled positions
            pixel_extractor(scale, size=40),
        ):
            bank, asked = (
                extract_features(extract, p, batch_size=8, device=device) for p in (digits.train, digits.test)
            )
            if digits.train.kind == "class":
                tensors = [torch.from_numpy(a) for a in (bank.x, bank.labels, asked.x)]
                knn_scores(*tensors, ks=(1, 5), classes=10)
        if isinstance(objective, Supervised):
            predict(objective, digits.test, scale, size=size, device=device)
        if isinstance(objective, MAE):
            picture = tmp_path / "picture.png"
            model = ResolvedModel("vit_tiny_patch16_224", size, pool="mean")
            facts = Facts(len(digits.train), model, ModelFacts(224, 16, 192, 12, 3))
            save_reconstructions(objective, digits.train, scale, picture, resolve(MAERecipe(), facts, PRESETS["px32"]))


@pytest.mark.parametrize("deep", [False, True])
def test_many_crops_need_no_double_precision(deep: bool) -> None:
    crops = ResolvedCrops(
        (0.4, 1.0), (0.05, 0.4), 3, 8, flip=True, jitter=1.0, blur=(1.0, 0.1, 0.5), blur_sigma=(0.1, 2.0), solarise=0.2
    )
    scale = PixelScale((0.5,) * 3, (0.2,) * 3, 16 if deep else 8)
    view = multicrop_view(scale, crops, size=16, drop_rates=linear_rates(2, 0.1), dtype=torch.float32)
    images = (torch.rand(16, 3, 20, 20) * 255).to(torch.int32 if deep else torch.uint8)
    words = torch.arange(16)
    with no_double():
        view(Batch(images, words, words, torch.full((16, 2), 30.0), False, None), 0)


def _in_forward(x: Tensor) -> Tensor:
    return x * torch.ones((), dtype=torch.float64)


class _InBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> Tensor:
        return (grad[0].double() * 2).float()


@pytest.mark.parametrize(
    "planted",
    [
        _in_forward,
        _InBackward.apply,
        lambda x: x + torch.from_numpy(np.ones(3)),
        lambda x: x + torch.from_numpy(np.ones(3)).to(x.device).to(x.dtype),
        lambda x: x + torch.tensor([1.0], dtype=torch.float64, device=x.device).float(),
        lambda x: x * torch.ones(3, dtype=torch.complex64).to(torch.complex128),
        lambda x: x[torch.from_numpy(np.zeros(3)) == 0],
    ],
)
def test_planted_doubles_are_found(planted: Callable[[Tensor], Tensor]) -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(AssertionError, match="MPS has no double precision"), no_double():
        planted(x).abs().sum().backward()


def test_a_host_table_may_be_sent_in_single_precision() -> None:
    with no_double():
        assert torch.from_numpy(np.ones(3)).to(torch.ones(1)).dtype == torch.float32


def test_fp64_is_refused_on_apples_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnApple(Accelerator):
        device = property(lambda self: torch.device("mps"))

    monkeypatch.setattr(joining, "Accelerator", OnApple)
    with pytest.raises(UserError, match=r"--fit\.precision fp64: .*mps.*use fp32"):
        launch.join("fp64")


# --- no waiting for the device --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_views_read_nothing_from_the_device(name: str, digits: Labelled) -> None:
    """Tensors without content cannot be read: what a view decides on the host it must know from the host."""
    digits = digits._replace(train=labelled_as(digits.train, name))
    scale = measure_scale(digits.train)
    _, view = CASES[name][1](scale)
    loader = Loader(digits.train, batch_size=16, micro_batch=16, seed=3, device=torch.device("cpu"))
    batch = next(iter(loader.batches(0, 1)))
    away = {key: value.to("meta") for key in ("images", "labels") if (value := getattr(batch, key)) is not None}
    inputs, real = view(replace(batch, **away), 3), view(batch, 3)
    assert {key: value.shape for key, value in inputs.items()} == {key: value.shape for key, value in real.items()}
    assert all(value.is_meta for value in inputs.values())


class _Waits(TorchDispatchMode):
    """Collects operations whose result the host needs before it can go on."""

    found: list[str] = []  # noqa: RUF012

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        masks = [x for x in tree_leaves(args[1:]) if isinstance(x, Tensor) and x.dtype == torch.bool]
        if func.overloadpacket in _WAITING or (masks and func.overloadpacket in _INDEXING):
            self.found.append(str(func))
        return func(*args, **(kwargs or {}))


_WAITING = {torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero, torch.ops.aten.equal,
            torch.ops.aten.masked_select, torch.ops.aten.is_nonzero}  # fmt: skip
_INDEXING = {torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_}
"""With a mask: how many it chooses is read."""


@pytest.mark.parametrize("name", CASES)
def test_no_step_waits_for_the_device(name: str, digits: Labelled) -> None:
    digits = digits._replace(train=labelled_as(digits.train, name))
    objective, view = CASES[name][1](measure_scale(digits.train))
    # Only a CPU looks at who drops a branch. Optimisers of older torch ask the same question.
    patch = pytest.MonkeyPatch()
    objective.register_forward_pre_hook(lambda *_: patch.setattr(torch.compiler, "is_compiling", lambda: True))
    objective.register_forward_hook(lambda *_: patch.undo(), always_call=True)
    accelerator = launch.join("fp32")
    loader = Loader(digits.train, batch_size=16, micro_batch=8, seed=3, device=accelerator.device)
    stepper = Stepper(objective.train(), fit=FIT, optim=ResolvedOptim(lr=1e-3, base_lr=1e-3), accelerator=accelerator)
    stepper.prepare(loader.accumulation)
    batches = [view(batch, 3) for batch in loader.batches(0, 2)]
    inputs = iter(batches)
    waits = _Waits()
    waits.found = []
    stepper(Clock(0, 10_000, 100.0), 1e-3, lambda: next(inputs))  # the optimiser makes its state
    with waits:
        stepper(Clock(1, 10_000, 100.0), 1e-3, lambda: next(inputs))
    assert waits.found == []


def test_planted_waits_are_found() -> None:
    waits = _Waits()
    waits.found = []
    with waits:
        x = torch.ones(3)
        assert bool(x.sum() > 0)
        x[x > 0].sum().item()
    assert len(waits.found) >= 3


def _host_numbers(tree: ast.AST) -> Iterator[str]:
    """Places that make a tensor on a device of Python's numbers, which waits for it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            on_device = any(keyword.arg == "device" for keyword in node.keywords)
            if node.func.attr == "new_tensor" or (_chain(node.func) == "torch.tensor" and on_device):
                yield f"{node.lineno}: {_chain(node.func)}"


_ROOMS = ("data", "models", "objectives", "views")
STEPS = sorted(p for room in _ROOMS for p in (ROOT / "ssl_vit" / room).rglob("*.py"))
_ONCE = {"constants.py", "cache.py", "augment.py", "positions.py", "stochastic_depth.py"}
"""Where that happens once and is remembered."""


@pytest.mark.parametrize("path", STEPS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_constants_are_sent_once(path: Path) -> None:
    if path.name not in _ONCE:
        assert list(_host_numbers(ast.parse(path.read_text()))) == []


# --- no CUDA without asking ----------------------------------------------------------------------------------------


def _chain(node: ast.AST) -> str:
    """``torch.cuda.get_device_name`` of an attribute chain, empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    inner = _chain(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if isinstance(node, ast.Attribute) and inner else ""


def _asks_for_cuda(test: ast.expr) -> bool:
    """A device of CUDA (``.type``, ``computes_on()``) or ``torch.cuda.is_available()``, alone or joined by ``and``."""
    if isinstance(test, ast.BoolOp):
        return isinstance(test.op, ast.And) and any(_asks_for_cuda(value) for value in test.values)
    if isinstance(test, ast.Call):
        return _chain(test.func) == "torch.cuda.is_available"
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    left, right = test.left, test.comparators[0]
    asked = isinstance(left, ast.Attribute) and left.attr == "type"
    asked = asked or (isinstance(left, ast.Call) and _chain(left.func) == "computes_on")
    return asked and isinstance(right, ast.Constant) and right.value == "cuda"


_CUDA_MODULES = ("torch.cuda", "torch.backends.cuda", "torch.backends.cudnn")


def cuda_only(tree: ast.AST, guarded: bool = False) -> Iterator[str]:
    """Places that need CUDA and have not asked for it.

    Args:
        tree: A module, or a part of it.
        guarded: Whether this part only runs where CUDA is there.
    """
    if isinstance(tree, (ast.If, ast.IfExp)):
        yield from cuda_only(tree.test, guarded)
        inside = guarded or _asks_for_cuda(tree.test)
        for part, safe in ((tree.body, inside), (tree.orelse, guarded)):
            for child in part if isinstance(part, list) else [part]:
                yield from cuda_only(child, safe)
        return
    line = getattr(tree, "lineno", 0)
    if isinstance(tree, ast.Attribute):
        name = _chain(tree)
        if name == "torch.cuda.is_available":
            return
        if name.startswith(_CUDA_MODULES):
            if not guarded:
                yield f"{line}: {name} without asking for CUDA"
            return
    if isinstance(tree, (ast.Import, ast.ImportFrom)):
        names = [alias.name for alias in tree.names]
        module = tree.module if isinstance(tree, ast.ImportFrom) and tree.module else ""
        for full in (f"{module}.{name}".strip(".") for name in names):
            if full.startswith(_CUDA_MODULES):
                yield f"{line}: {full} is imported under another name"
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Attribute) and tree.func.attr == "cuda":
        yield f"{line}: .cuda() instead of .to(device)"
    if isinstance(tree, ast.Compare):  # asking is allowed
        return
    named = isinstance(tree, ast.Constant) and isinstance(tree.value, str) and tree.value.split(":")[0] == "cuda"
    if named and not guarded:
        yield f"{line}: a device named in the code"
    for child in ast.iter_child_nodes(tree):
        yield from cuda_only(child, guarded)


SOURCES = sorted(path for folder in ("ssl_vit", "recipes", "eval") for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_cuda_is_never_taken_for_granted(path: Path) -> None:
    assert list(cuda_only(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize(
    "planted",
    [
        "torch.cuda.synchronize()",
        "x = torch.zeros(1).cuda()",
        "x = torch.zeros(1, device='cuda')",
        "model.to('cuda:0')",
        "device = torch.device('cuda' if fast else 'cpu')",
        "if fast:\n    torch.cuda.empty_cache()",
        "if torch.cuda.is_available():\n    pass\nelse:\n    torch.cuda.empty_cache()",
        "if not torch.cuda.is_available():\n    torch.cuda.empty_cache()",
        "if fast or device.type == 'cuda':\n    torch.cuda.empty_cache()",
        "if device.type != 'cuda':\n    torch.cuda.empty_cache()",
        "torch.backends.cudnn.benchmark = True",
        "from torch.cuda import amp",
        "from torch import cuda",
        "import torch.cuda as gpu",
    ],
)
def test_planted_cuda_is_found(planted: str) -> None:
    assert list(cuda_only(ast.parse(planted)))


@pytest.mark.parametrize(
    "guarded",
    [
        "if device.type == 'cuda':\n    torch.cuda.synchronize()",
        "name = torch.cuda.get_device_name(device) if device.type == 'cuda' else device.type",
        "if torch.cuda.is_available() and fast:\n    for i in range(2):\n        torch.backends.cudnn.benchmark = True",
        "fast = torch.cuda.is_available()",
        '"""Runs on cuda: fast."""',
    ],
)
def test_asking_first_is_fine(guarded: str) -> None:
    assert list(cuda_only(ast.parse(guarded))) == []
