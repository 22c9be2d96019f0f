"""Cores that a process may use: the machine's, its affinity's, and its control groups'."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from ssl_vit.core import machine


@pytest.mark.parametrize(
    ("physical", "affinity", "quotas", "cores"),
    [
        (8, 16, {}, 8),
        (8, 2, {}, 2),
        (None, 4, {}, 4),
        (8, 16, {"job": "300000 100000"}, 3),
        (8, 16, {"job": "max 100000", "job/step": "150000 100000"}, 1),
        (8, 16, {"job": "50000 100000"}, 1),
        (8, 16, {"job": "400000 100000", "job/step": "600000 100000"}, 4),
    ],
)
def test_cores_that_may_be_used(
    physical: int | None, affinity: int, quotas: dict[str, str], cores: int, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: physical)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: range(affinity), raising=False)
    monkeypatch.setattr(machine, "_GROUPS", tmp_path)
    monkeypatch.setattr(machine, "_OWN_GROUP", tmp_path / "own")
    (tmp_path / "own").write_text("0::/job/step\n")
    for group, words in quotas.items():
        (tmp_path / group).mkdir(parents=True, exist_ok=True)
        (tmp_path / group / "cpu.max").write_text(words + "\n")
    assert machine.usable_cores() == cores
