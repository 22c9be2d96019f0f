"""What is imported late is there when it is wanted, and then nothing is otherwise than if it had been there first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ssl_vit.core import later

START = """
import sys
from ssl_vit.core import later
later.when_needed()
later.when_needed()
import torch, torchvision, timm
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.AdamW([weight])
(weight**2).sum().backward()
optimizer.step()
optimizer.zero_grad()
from accelerate.utils import extract_model_from_parallel, is_compiled_module
assert not is_compiled_module(torch.nn.Linear(1, 1))
assert "torch._dynamo.eval_frame" not in sys.modules and "sympy" not in sys.modules
assert len([one for one in sys.meta_path if type(one).__name__ == "_Compiler"]) == 1
before = torch._dynamo
"""
THERE = """
assert torch._dynamo is sys.modules["torch._dynamo"] is not before and type(torch._dynamo) is type(sys)
assert before.eval_frame is torch._dynamo.eval_frame is sys.modules["torch._dynamo.eval_frame"]
assert before.utils.counters is torch._dynamo.utils.counters is sys.modules["torch._dynamo.utils"].counters
"""

WANTED = [
    "before.config.suppress_errors = True; assert torch._dynamo.config.suppress_errors",
    "assert before.eval_frame.innermost_fn(len) is len",
    "import torch._dynamo.config as config; assert config is torch._dynamo.config",
    "sys.modules['torchvision.ops.roi_align'].is_compile_supported('cpu')",
    """
try:
    from torch._dynamo import nothing_of_that_name
except ImportError:
    pass
""",
]
EACH = f"""
import os
for wants in {WANTED!r}:
    child = os.fork()
    if not child:
        exec(wants)
        exec({THERE!r})
        os._exit(0)  # what is not caught ends the child with 1
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, wants
"""


@pytest.mark.slow
def test_whatever_is_wanted_of_it_brings_it_once() -> None:
    subprocess.run([sys.executable, "-c", START + EACH], check=True)


COMPILED = """
calls = []
def left_alone(x):
    calls.append(torch.compiler.is_compiling())
    return x + 1
before_it = torch.compiler.disable(left_alone)
assert before_it(torch.ones(2)).sum() == 4 and "sympy" not in sys.modules
assert before_it.__name__ == "left_alone"

graphs = []
def backend(graph, _):
    graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
    return graph.forward
@torch.compile(backend=backend)
def whole(x):
    return before_it(x * 2) * 3
assert whole(torch.ones(2)).sum() == 18
assert len(graphs) == 2 and "add" not in str(graphs), graphs  # cut where it must not be compiled
assert calls == [False, False]

@torch.compile(backend=backend, fullgraph=True)
def uncut(x):
    return before_it(x)
try:
    uncut(torch.ones(2))
except torch._dynamo.exc.Unsupported:
    pass
else:
    raise AssertionError

class Steps(torch.nn.Module):
    def forward(self, x):
        optimizer.zero_grad()
        return x * 2
assert torch.compile(Steps(), backend=backend)(torch.ones(2)).sum() == 4
optimizer.step()
module = torch.compiler.disable(torch.nn.Linear(2, 2))
"""


@pytest.mark.slow
def test_what_must_not_be_compiled_is_not_though_that_was_said_before() -> None:
    subprocess.run([sys.executable, "-c", START + COMPILED + THERE], check=True)


def test_where_it_is_there_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._dynamo

    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    later.when_needed()
    assert "torch._dynamo" not in [getattr(one, "name", None) for one in sys.meta_path]
    assert type(torch._dynamo) is type(sys)


@pytest.mark.parametrize(
    "wants",
    [
        "before.value",
        "import late_one.inner",
        "from late_one.inner import value",
        "before.inner.value",
        "from late_one import *; assert value == 1 and inner",
        "assert before.__version__ == '3'",
    ],
)
def test_any_module_comes_when_it_is_wanted_and_once(tmp_path: Path, wants: str) -> None:
    folder = tmp_path / "late_one"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "import sys\nfrom late_one import inner\n"
        "__all__, value, __version__ = ['value', 'inner'], 1, '3'\nsys.made.append(1)\n"
    )
    (folder / "inner.py").write_text("value = 2\n")
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
sys.made = []
from importlib.util import find_spec
from ssl_vit.core import later
sys.meta_path.insert(0, later._Later({{"late_one": {{}}}}))
assert find_spec("late_one").origin == {str(folder / "__init__.py")!r} and "late_one" not in sys.modules
import late_one as before
assert find_spec("late_one").submodule_search_locations == [{str(folder)!r}]
assert not hasattr(before, "__wrapped__") and not sys.made
{wants}
import late_one
assert sys.made == [1] and late_one is not before
assert before.value == late_one.value == 1 and before.inner is late_one.inner is sys.modules["late_one.inner"]
assert late_one.inner.value == 2
assert late_one.inner.__spec__.loader is late_one.inner.__loader__ is not late_one.__class__
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_threads_that_import_do_not_wait_for_each_other_for_ever(tmp_path: Path) -> None:
    (tmp_path / "late_one").mkdir()
    (tmp_path / "late_one" / "__init__.py").write_text("import sys\nsys.brought.set()\nimport needed\n")
    (tmp_path / "late_one" / "inner.py").write_text("")
    (tmp_path / "needed.py").write_text("import sys\nsys.begun.set()\nsys.brought.wait()\nimport other\n")
    (tmp_path / "other.py").write_text("")
    program = f"""
import sys
from threading import Event, Thread
sys.path.insert(0, {str(tmp_path)!r})
sys.begun, sys.brought = Event(), Event()
from ssl_vit.core import later
sys.meta_path.insert(0, later._Later({{"late_one": {{}}}}))
import late_one
thread = Thread(target=lambda: __import__("needed"), daemon=True)
thread.start()
sys.begun.wait()
import late_one.inner
thread.join()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_what_cannot_be_imported_cannot_be_imported_later(tmp_path: Path) -> None:
    (tmp_path / "late_two").mkdir()  # a folder of that name
    (tmp_path / "late_three.py").write_text("import nothing_of_that_name as sys")
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from ssl_vit.core import later
for name in ("late_one", "late_two", "late_three"):
    sys.meta_path.insert(0, later._Later({{name: {{}}}}))
try:
    import late_one
except ModuleNotFoundError:
    pass
import late_two
assert type(late_two).__name__ == "module"
import late_three
for _ in range(2):
    try:
        late_three.value
    except ModuleNotFoundError as error:
        assert error.name == "nothing_of_that_name"
    else:
        raise AssertionError
sys.modules["nothing_of_that_name"] = sys
import late_three as again
assert again is not late_three and late_three.sys is sys
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.slow
def test_a_training_does_without_it() -> None:
    program = (
        "import sys, tempfile\n"
        "from ssl_vit.script import run_script\n"
        "from ssl_vit.methods.mae import METHOD, MAERecipe\n"
        "def main(cfg):\n"
        "    from ssl_vit.training.pretraining import pretrain\n"
        "    pretrain(METHOD, cfg)\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    run_script(main, MAERecipe, '', ['--fit.epochs', '0.05', '--run.dir', folder])\n"
        "late = {'sympy', 'torch.distributed.tensor', 'torch._dynamo.eval_frame', 'wandb.sdk', 'botocore'}\n"
        "assert not late & {*sys.modules}\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
