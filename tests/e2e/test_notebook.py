"""A kernel of Jupyter: the tutorial runs as it stands, pictures appear, the stop button leaves the kernel usable."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
manager = pytest.importorskip("jupyter_client.manager")
pytest.importorskip("ipykernel")

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorials" / "notebook.ipynb"
SMALL = 'model={"width": 16, "depth": 1, "heads": 2}, '


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Any]:
    started = manager.KernelManager(kernel_cmd=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"])
    started.start_kernel(cwd=str(tmp_path))
    client = started.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=120)
    try:
        yield started, client
    finally:
        client.stop_channels()
        started.shutdown_kernel(now=True)


def outputs(cell: Any, kind: str) -> list[Any]:
    return [output for output in cell.outputs if output.output_type == kind]


@pytest.mark.filterwarnings("ignore")  # of what runs notebooks
def test_the_tutorial_runs_as_it_stands(tmp_path: Path) -> None:
    content = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(content, timeout=1200, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env=os.environ | {"PYTHONWARNINGS": "ignore"})  # tqdm asks for widgets
    code = [cell for cell in content.cells if cell.cell_type == "code"]
    first, kinds, again, refused, picture, network = code
    (shown,) = outputs(first, "execute_result")
    assert "image/png" in shown.data
    assert "top1: " in "".join(output.text for output in outputs(first, "stream"))
    assert "".join(output.text for output in outputs(kinds, "stream") if output.name == "stdout").count("(1797, ") == 3
    assert "True\n" in "".join(output.text for output in outputs(again, "stream"))
    (error,) = outputs(refused, "error")
    assert error.ename == "UserError" and len(error.traceback) == 1 and "without its random transforms" in error.evalue
    assert "image/png" in outputs(picture, "execute_result")[0].data
    assert outputs(network, "execute_result")[0].data["text/plain"].startswith("torch.Size([1, ")
    for cell in code:
        printed = "".join(output.text for output in outputs(cell, "stream"))
        assert "Warning" not in printed and "\r" not in printed


def test_the_tutorial_in_the_repository_shows_what_it_does() -> None:
    content = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(content)
    assert all(cell.outputs for cell in content.cells if cell.cell_type == "code")
    assert NOTEBOOK.stat().st_size < 500_000
    assert len([line for line in content.cells[1].source.splitlines() if line]) <= 10


def run_until(client: Any, code: str, text: str) -> str:
    """Starts a cell and waits until it has printed a text; returns what tells its messages from others."""
    # By default a kernel refuses what reaches it in the moments after an error, however usable it is.
    sent = client.execute(code, stop_on_error=False)
    printed, end = "", time.monotonic() + 120
    while text not in printed:
        message = client.get_iopub_msg(timeout=max(1, end - time.monotonic()))
        printed += message["content"].get("text", "")
        assert message["msg_type"] != "error", message["content"]["evalue"]
    return sent


@pytest.mark.filterwarnings("ignore")
def test_the_stop_button_saves_and_leaves_the_kernel_usable(kernel: Any, tmp_path: Path) -> None:
    started, client = kernel
    training = f'import ssl_vit; run = ssl_vit.pretrain("mae", {SMALL} out="run", fit={{"epochs": 3000}})'
    sent = run_until(client, training, "step ")
    started.interrupt_kernel()
    reply = client.get_shell_msg(timeout=120)
    while reply["parent_header"]["msg_id"] != sent:  # answers to what was asked before
        reply = client.get_shell_msg(timeout=120)
    assert reply["content"]["ename"] == "Stopped" and "the same call continues" in reply["content"]["evalue"]
    assert list((tmp_path / "run" / "checkpoints").iterdir())
    assert not (tmp_path / "run" / "run.lock").exists()
    after = client.execute_interactive("print(6 * 7)", timeout=60)
    assert after["content"]["status"] == "ok"


@pytest.mark.filterwarnings("ignore")
def test_drawing_pictures_leaves_the_plots_of_a_notebook_alone(kernel: Any) -> None:
    _, client = kernel
    found: list[Any] = []
    code = (
        "import matplotlib.pyplot as plt; before = plt.get_backend()\n"
        f'import ssl_vit; run = ssl_vit.pretrain("mae", {SMALL} fit={{"epochs": 1}})\n'
        "assert plt.get_backend() == before\nplt.plot([1, 2]);"
    )
    reply = client.execute_interactive(code, timeout=300, output_hook=found.append)
    assert reply["content"]["status"] == "ok", reply["content"]
    assert any("image/png" in message["content"].get("data", {}) for message in found)
