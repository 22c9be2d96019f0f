"""Torch's compiler is imported when something is compiled, and then nothing is otherwise than if it had been first."""

from __future__ import annotations

import subprocess
import sys

import pytest
from ssl_vit.core import dynamo

START = """
import sys
from ssl_vit.core import dynamo
dynamo.when_needed()
dynamo.when_needed()
import torch, torchvision, timm
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.AdamW([weight])
(weight**2).sum().backward()
optimizer.step()
optimizer.zero_grad()
from accelerate.utils import extract_model_from_parallel, is_compiled_module
assert not is_compiled_module(torch.nn.Linear(1, 1))
assert "torch._dynamo.eval_frame" not in sys.modules and "sympy" not in sys.modules
assert len([one for one in sys.meta_path if type(one).__module__ == "ssl_vit.core.dynamo"]) == 1
before = torch._dynamo
"""
THERE = """
assert torch._dynamo is sys.modules["torch._dynamo"] is not before and type(torch._dynamo) is type(sys)
assert before.eval_frame is torch._dynamo.eval_frame is sys.modules["torch._dynamo.eval_frame"]
assert before.utils.counters is torch._dynamo.utils.counters is sys.modules["torch._dynamo.utils"].counters
assert not [one for one in sys.meta_path if type(one).__module__ == "ssl_vit.core.dynamo"]
"""

WANTED = [
    "before.config.suppress_errors = True; assert torch._dynamo.config.suppress_errors",
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


def test_where_it_is_there_nothing_is_changed() -> None:
    import torch._dynamo

    looked = list(sys.meta_path)
    dynamo.when_needed()
    assert sys.meta_path == looked
    assert type(torch._dynamo) is type(sys)


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
        "assert not {'sympy', 'torch.distributed.tensor', 'torch._dynamo.eval_frame'} & {*sys.modules}\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
