"""What ``ssl-vit verify RUN`` says of a run's files, whole and damaged."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ssl_vit.core import sums
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import sha256
from ssl_vit.runs.verify import BAD, Checked, verify

from made_scripts import InProcess

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def judged(backbone: str, script: InProcess) -> Path:
    """A run of MAE with a result."""
    status, _, err = script("eval/knn.py", "--backbone", backbone)
    assert status == 0, err
    return Path(backbone).resolve()


def states(run: Path) -> dict[str, str]:
    return {str(one.path): one.state for one in verify(run)}


def wrong(run: Path) -> list[Checked]:
    return [one for one in verify(run) if one.state in BAD]


def test_a_run_is_whole_file_by_file(judged: Path, script: InProcess) -> None:
    found = states(judged)
    checkpoint = max(name for name in found if name.endswith(".pt"))
    whole = {name for name, state in found.items() if state == "whole"}
    assert {"backbone/config.json", "backbone/model.safetensors", "results/knn.json", "results/knn.npz"} <= whole
    assert checkpoint in whole
    features = {name for name in found if name.startswith("features/")}
    assert features and features <= whole
    for name in ("config.yaml", "environment.json", "metrics.jsonl", "timing.jsonl"):
        assert found[name] == "readable"
    assert not wrong(judged)
    status, out, err = script("eval/verify.py", str(judged))
    assert (status, err) == (0, "")
    assert " have none and can be read (config.yaml, environment.json, " in out
    assert " have none and are not checked (backbone/README.md" in out
    assert "0 are damaged or missing" in out
    # The same, by a program that everybody has.
    done = subprocess.run(
        ["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=judged / "backbone", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_flipped_bit_in_kept_features_is_found(judged: Path, script: InProcess) -> None:
    path = next((judged / "features").glob("*.safetensors"))
    flipped(path)
    (found,) = wrong(judged)
    assert (found.path, found.state) == (path.relative_to(judged), "damaged")
    assert found.why == "its vectors do not have the hash beside them; an evaluation computes them again"
    status, _, err = script("eval/knn.py", "--backbone", str(judged))
    assert status == 0, err
    assert not wrong(judged)


@pytest.mark.parametrize(
    "name", ["backbone/config.json", "backbone/model.safetensors", "results/knn.json", "results/knn.npz"]
)
def test_a_flipped_bit_is_found(judged: Path, name: str, script: InProcess) -> None:
    flipped(judged / name)
    (found,) = wrong(judged)
    assert (str(found.path), found.state) == (name, "damaged")
    status, out, _ = script("eval/verify.py", str(judged))
    assert status == 1
    assert f"damaged  {judged / name}: its hash is not the hash in SHA256SUMS" in out
    (judged / name).unlink()
    (found,) = wrong(judged)
    assert found.state == "missing"


def test_damaged_checkpoints_lines_and_texts_are_found(judged: Path, script: InProcess) -> None:
    newest = max(judged.glob("checkpoints/*.pt"))
    flipped(newest)
    (judged / "environment.json").write_text("[]")
    (judged / "config.yaml").write_bytes(b"\x00\xff")
    lines = (judged / "metrics.jsonl").read_text().splitlines(keepends=True)
    (judged / "metrics.jsonl").write_text("".join([lines[0], "half\n", *lines[1:]]))
    (judged / "timing.jsonl").write_text("".join(reversed((judged / "timing.jsonl").read_text().splitlines(True))))
    (judged / "checkpoints" / "step_000000999.pt").write_bytes(b"no hash")
    (judged / "backbone" / "more.part").write_bytes(b"half")
    found = {str(one.path): one for one in wrong(judged)}
    assert set(found) == {
        "environment.json", "config.yaml", "metrics.jsonl", "timing.jsonl", "checkpoints/step_000000999.pt",
        str(newest.relative_to(judged)),
    }  # fmt: skip
    assert found["metrics.jsonl"].why == "1 line(s) cannot be read (2)"
    status, out, _ = script("eval/verify.py", str(judged), "--json")
    told = json.loads(out)
    assert (status, told["sound"]) == (1, False)
    assert {one["path"] for one in told["files"] if one["state"] == "damaged"} == set(found)
    assert next(one for one in told["files"] if one["path"] == "backbone/more.part")["why"].startswith("half a file")


def in_parts(run: Path, step: int) -> Path:
    place = run / "checkpoints" / f"step_{step:09d}.shards"
    place.mkdir()
    for name in (".metadata", "__0_0.distcp", "__1_0.distcp", "rest.pt"):
        (place / name).write_text(name * 9)
    lines = "".join(f"{sha256(path)}  {path.name}\n" for path in place.iterdir())
    place.with_suffix(".shards.sha256").write_text(lines)
    return place


def test_checkpoints_in_parts_are_checked_file_by_file(judged: Path) -> None:
    place = in_parts(judged, 7)
    own = place.relative_to(judged)
    found = states(judged)
    assert {found[str(own / path.name)] for path in place.iterdir()} == {"whole"}
    assert f"{own}.sha256" not in found
    flipped(place / "__1_0.distcp")
    (place / "__0_0.distcp").unlink()
    (place / "more").write_text("")
    assert {(str(one.path), one.state, one.why) for one in wrong(judged)} == {
        (str(own / "__1_0.distcp"), "damaged", f"its hash is not the hash in {place.name}.sha256"),
        (str(own / "__0_0.distcp"), "missing", ""),
        (str(own / "more"), "damaged", f"no hash of it is in {place.name}.sha256"),
    }
    place.with_suffix(".shards.sha256").unlink()
    (one,) = wrong(judged)
    assert (one.path, one.state) == (own, "damaged") and "no hash was written" in one.why
    shutil.rmtree(place)
    place.with_suffix(".shards.sha256").write_text("")
    (one,) = wrong(judged)
    assert (one.path, one.state) == (own, "missing")


@pytest.mark.parametrize("gone", ["config.yaml", "environment.json", "metrics.jsonl", "backbone", "checkpoints"])
def test_what_a_run_must_hold_is_missed(judged: Path, gone: str, script: InProcess) -> None:
    place = judged / gone
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    expected = {"backbone": {"backbone/config.json", "backbone/model.safetensors"}}.get(gone, {gone})
    assert {(str(one.path), one.state) for one in wrong(judged)} == {(name, "missing") for name in expected}
    status, out, _ = script("eval/verify.py", str(judged))
    assert status == 1 and f"missing  {judged / min(expected)}" in out


def test_a_run_that_has_lost_all_that_it_made_is_not_sound(judged: Path) -> None:
    for name in ("backbone", "checkpoints"):
        shutil.rmtree(judged / name)
    (judged / "metrics.jsonl").unlink()
    assert {str(one.path) for one in wrong(judged)} == {
        "backbone/config.json", "backbone/model.safetensors", "checkpoints", "metrics.jsonl",
    }  # fmt: skip


def test_a_run_that_was_stopped_early_misses_nothing(judged: Path) -> None:
    shutil.rmtree(judged / "backbone")
    shutil.rmtree(judged / "checkpoints")
    about = json.loads((judged / "environment.json").read_text())
    del about["unreadable_images"]
    (judged / "environment.json").write_text(json.dumps(about))
    first = (judged / "metrics.jsonl").read_text().splitlines(keepends=True)[0]
    (judged / "metrics.jsonl").write_text(first)
    assert not wrong(judged)


def test_runs_of_earlier_versions_have_no_hashes_but_those_in_results(judged: Path) -> None:
    for folder in ("backbone", "results"):
        (judged / folder / sums.NAME).unlink()
    found = states(judged)
    assert found["backbone/model.safetensors"] == "whole"
    assert (found["results/knn.json"], found["results/knn.npz"]) == ("readable", "readable")
    flipped(judged / "backbone" / "model.safetensors")
    (one,) = wrong(judged)
    assert one.why == "results were made with other weights"
    (judged / "results" / "knn.npz").write_bytes(b"PK")
    assert len(wrong(judged)) == 2


def test_what_is_no_run_is_refused(tmp_path: Path, script: InProcess) -> None:
    empty = tmp_path / "empty"  # not tmp_path itself: its neighbours are other tests' runs, and would be proposed
    empty.mkdir()
    for place, what in ((empty, "is no run: it holds no config.yaml"), (tmp_path / "nowhere", "does not exist")):
        with pytest.raises(UserError, match=f"{what}; give RUN, the folder of a run, or a folder that was exported$"):
            verify(place)
    (tmp_path / "run" / "figures").mkdir(parents=True)
    (tmp_path / "run" / "environment.json").touch()
    with pytest.raises(UserError, match=r"figures is no run: .*; it lies in the run .*/run: name that"):
        verify(tmp_path / "run" / "figures")
    status, _, err = script("eval/verify.py", str(tmp_path))
    assert status == 2 and err.startswith("error: ") and len(err.splitlines()) == 1


def test_a_folder_that_was_exported_is_checked_by_itself(judged: Path, tmp_path: Path) -> None:
    shutil.copytree(judged / "backbone", tmp_path / "mine")
    assert states(tmp_path / "mine") == {
        "config.json": "whole", "model.safetensors": "whole", "README.md": "not checked",
    }  # fmt: skip


def test_sums_are_written_beside_those_that_stand_there(tmp_path: Path) -> None:
    for name in ("a", "b ä"):
        (tmp_path / name).write_text(name)
        sums.note(tmp_path, [name])
    assert list(sums.read(tmp_path)) == ["a", "b ä"]
    (tmp_path / "a").unlink()
    np.save(tmp_path / "c.npy", np.ones(2))
    sums.note(tmp_path, ["c.npy"])
    assert list(sums.read(tmp_path)) == ["b ä", "c.npy"]
    (tmp_path / sums.NAME).write_bytes(b"\xff\xfe rubbish\n" + b"0" * 64 + b"  ../../etc/passwd\n")
    assert sums.read(tmp_path) == {}


def test_it_needs_no_torch() -> None:
    code = "import sys, ssl_vit.runs.verify; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
