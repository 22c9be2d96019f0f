"""Which tests run, how thoroughly, and what every test shares.

Plain ``pytest`` is the quick tier: every module, one tiny whole way, and parity, on all cores. ``pytest -m ""`` is
everything. Files and folders that are named (``pytest tests/e2e/test_presets.py``) run whole.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from made_processes import Warm
from made_scripts import SMALL, InProcess

TESTS = Path(__file__).resolve().parent
FOLDERS = {"distributed": "processes", "e2e": "slow"}
"""Markers of whole folders; the longest come first, so that no core is left alone with one of them at the end."""
STARTS_PROCESSES = {"launch", "launched", "warm"}
"""Fixtures that start Python again."""
TYPED = {"contracts", "parity"}
"""Folders whose tests say most with shapes and types checked at run time."""

os.environ["OMP_NUM_THREADS"] = "1"  # a worker per core; and sums of one order, however many there are
if "SSL_VIT_CACHE" not in os.environ:  # what the leak guard found is kept for one run of the tests, and all its workers
    _kept = tempfile.TemporaryDirectory(prefix="ssl_vit_cache_")
    os.environ["SSL_VIT_CACHE"] = _kept.name
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where the tests themselves run under nohup
CI = os.environ.get("CI", "").lower() not in ("", "0", "false")

for name, examples in {"quick": 10, "thorough": 50}.items():
    settings.register_profile(name, max_examples=examples, deadline=None, database=None, derandomize=True)


def named(config: pytest.Config) -> list[Path]:
    """Files and folders below this one that were asked for; empty for all."""
    paths = [(config.invocation_params.dir / arg.partition("::")[0]).resolve() for arg in config.args]
    return [] if any(TESTS.is_relative_to(path) for path in paths) else paths


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A worker per core; none for a few files, which are done before a second process has imported torch."""
    paths = named(config)
    files = {file for path in paths for file in ([path] if path.is_file() else path.rglob("test_*.py"))}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 0 if paths and len(files) < 4 else min(8, cores)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    paths = named(config)
    chosen = hasattr(config, "workerinput") or any(arg.startswith("-m") for arg in config.invocation_params.args)
    if paths and not chosen:
        config.option.markexpr = ""
    settings.load_profile("thorough" if CI else "quick")
    if CI or (paths and all(path.relative_to(TESTS).parts[0] in TYPED for path in paths)):
        from made_checks import check

        check("ssl_vit")  # of the whole process, before the package is imported


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Markers by folder and by what a test needs; a test marked ``quick`` is quick wherever it stands."""
    place = {item: item.path.relative_to(TESTS).parts[0] for item in items}
    for item, folder in place.items():
        if STARTS_PROCESSES & set(getattr(item, "fixturenames", ())):
            item.add_marker("processes")
        elif folder in FOLDERS and not item.get_closest_marker("quick"):
            item.add_marker(FOLDERS[folder])
    order = {folder: i for i, folder in enumerate(FOLDERS)}
    items.sort(key=lambda item: order.get(place[item], len(order)))


def pytest_collection_finish() -> None:
    """What is imported stays: every collection of garbage would look through it, and some libraries ask for many."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # libraries count what is left at the end


@pytest.fixture(autouse=True)
def nothing_said_yet() -> Iterator[None]:
    """Every test is a program of its own."""
    from accelerate.state import AcceleratorState
    from ssl_vit.core.notices import forget
    from ssl_vit.core.signals import ENDING, _on_hold
    from ssl_vit.models.attention import SWITCH

    forget()
    if hasattr(SWITCH, "fp32_precision"):
        SWITCH.fp32_precision = "none"  # the library that the test before chose for its products
    AcceleratorState._reset_state()  # the precision of the test before
    taken = {number: signal.getsignal(number) for number in (*ENDING, signal.SIGINT)}
    yield
    _on_hold[0] = False
    for number, handler in taken.items():
        signal.signal(number, handler)  # a program that ends ignores them; the tests go on


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> InProcess:
    return InProcess(monkeypatch, tmp_path)


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """Runs a script on one or several processes that need not import anything."""
    processes = Warm()
    yield processes
    processes.close()


@pytest.fixture(scope="session")
def small() -> list[str]:
    return SMALL


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of MAE on digits, 45 steps of a small network: for all that only judge, and change nothing."""
    folder = tmp_path_factory.mktemp("tiny")
    with pytest.MonkeyPatch.context() as patch:
        status, _, err = InProcess(patch, folder)("recipes/mae.py", *SMALL, "--fit.epochs", "1", "--run.dir", "run")
    assert status == 0, err
    return folder / "run"


@pytest.fixture
def backbone(tiny_run: Path, tmp_path: Path) -> str:
    """The same, copied to where the test works."""
    shutil.copytree(tiny_run, tmp_path / "run")
    return "run"
