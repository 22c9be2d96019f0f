"""A small version of benchmarks/mutate.py: damaged files neither crash nor hang, whatever source they come through."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_damaged_files_are_read_named_or_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/mutate.py", "--files", "46", "--containers", "4", "--out", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    found = json.loads((tmp_path / "mutate.json").read_text()) if done.returncode in (0, 1) else {}
    assert (found.get("crashes"), found.get("hangs"), found.get("wrong")) == (0, 0, []), done.stderr
    assert done.returncode == 0
    ends = {end: sum(n for *_, kind, n in found["ends"] if kind == end) for end in ("read", "named", "refused")}
    assert all(ends.values()), ends
    sources = {source for source, *_ in found["ends"]}
    assert len(sources) == 9
    kinds = {kind for _, kind, _, _ in found["ends"]} - sources
    assert len(kinds) == 23  # every format
    assert "0 crashes, 0 hangs" in (tmp_path / "mutate.md").read_text()
