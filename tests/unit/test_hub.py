"""Names on the Hugging Face Hub, with a tiny hub on this machine: found, not found, unreachable, in the cache."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import ssl_vit.data.sources.hub
from datasets.exceptions import DatasetGenerationError
from ssl_vit.configs import SourceConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.sources.locate import open_source
from ssl_vit.data.sources.remote import BlockCache, RemoteFile

from made_hub import Hub, environment, serving

ASK = """
import os, sys
from ssl_vit.configs import SourceConfig
from ssl_vit.data.sources.locate import open_source
from ssl_vit.data.sources.remote import BlockCache, RemoteFile
from ssl_vit.core.errors import UserError
from ssl_vit.data.sources import remote
remote._FIRST_WAIT = 0.0
stream = True if "STREAM" in os.environ else None
for path in sys.argv[1:]:
    try:
        for name, part in open_source(SourceConfig(path=path, stream=stream), labelled=True).items():
            print(path, name, len(part.rows), part.rows.raw(0)[:4], part.labels.tolist())
    except UserError as error:
        print("refused:", error)
"""


@pytest.fixture
def hub() -> Iterator[str]:
    with serving() as address:
        yield address


def asked(*paths: str, endpoint: str, cwd: Path, **variables: str) -> list[str]:
    """What a process of its own says about paths: the hub's address is read when its client is imported."""
    known = environment(endpoint, cwd) | variables
    done = subprocess.run(
        [sys.executable, "-c", ASK, *paths], cwd=cwd, env=known, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


NOWHERE = "http://127.0.0.1:1"  # nothing listens there
FOUND = "tiny/pets train 3 b'\\x89PNG' [0, 1, 0]"


@pytest.mark.processes
def test_a_hub_that_answers_and_then_is_gone(hub: str, tmp_path: Path) -> None:
    found, unknown, secret = asked("tiny/pets", "tiny/dogs", "secret/pets", endpoint=hub, cwd=tmp_path)
    assert found == FOUND
    assert unknown.startswith("refused: there is no file or folder tiny/dogs")
    assert "no (public) data set of that name" in unknown
    assert "reached" not in unknown
    assert "needs a login" in secret
    gone, cached = asked("tiny/cats", "tiny/pets", endpoint=NOWHERE, cwd=tmp_path)
    assert cached == FOUND
    assert gone.startswith("refused: there is no file or folder tiny/cats")
    assert "not in the cache, and the hub cannot be reached" in gone
    assert "no (public) data set" not in gone


@pytest.mark.processes
def test_a_data_set_that_is_streamed_is_not_downloaded(
    hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hub, "ranges", [])
    blocks = {"SSL_VIT_CACHE": str(tmp_path / "blocks"), "STREAM": "1"}
    (found,) = asked("tiny/pets", endpoint=hub, cwd=tmp_path, **blocks)
    assert found == FOUND
    assert Hub.ranges == [(0, len(Hub.files["train.parquet"]) - 1)]  # one block, once
    assert not list((tmp_path / "cache").rglob("*.parquet"))
    assert len(list((tmp_path / "blocks" / "objects").glob("[!.]*"))) == 1


def test_two_splits_of_one_meaning_are_refused_where_they_are_streamed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = ssl_vit.data.sources.hub
    files, here = {"validation": ["hf://a.parquet"], "dev": ["hf://b.parquet"]}, BlockCache(Path("blocks"), 1)
    builder = SimpleNamespace(config=SimpleNamespace(data_files=files))
    monkeypatch.setattr(hub, "_known", lambda path, why: (path, None))
    monkeypatch.setattr("datasets.load_dataset_builder", lambda name, config: builder)
    monkeypatch.setattr(hub, "described", lambda url, cache_size: RemoteFile(url, 1, "1", here))
    with pytest.raises(UserError, match=r"tiny/pets .* has two splits of one meaning among validation, dev; leave out"):
        hub.streamed_files("tiny/pets", "", None)
    del files["dev"]
    expected = {"val": [RemoteFile("hf://a.parquet", 1, "1", here)]}, ".parquet"
    assert hub.streamed_files("tiny/pets", "", None) == expected


@pytest.mark.processes
def test_a_hub_that_fails_now_and_then_is_asked_again(
    hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hub, "ranges", [])
    monkeypatch.setattr(Hub, "faults", ["half of it", "418", "half of it"])
    monkeypatch.setattr(Hub, "lists", ["418", "418"])
    (found,) = asked("hf://datasets/tiny/pets", endpoint=hub, cwd=tmp_path, SSL_VIT_CACHE=str(tmp_path / "blocks"))
    assert found == FOUND.replace("tiny/pets", "hf://datasets/tiny/pets")
    assert (Hub.faults, Hub.lists, len(Hub.ranges)) == ([], [], 4)


@pytest.mark.processes
def test_a_machine_that_was_told_to_stay_offline(tmp_path: Path) -> None:
    (said,) = asked("tiny/pets", endpoint=NOWHERE, cwd=tmp_path, HF_HUB_OFFLINE="1")
    assert said.startswith("refused: there is no file or folder tiny/pets")
    assert "cannot be reached" in said
    assert "no (public) data set" not in said


@pytest.mark.parametrize("path", ["photos/dog", "a/b/c", "/tiny/pets", "pets", "./pets", "a b/c"])
def test_what_is_no_name_of_the_hub_is_not_asked_for(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos").mkdir()  # a folder that is here is no account there
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ssl_vit.data.sources.hub, "load_hub", lambda *_: pytest.fail("the hub was asked"))
    with pytest.raises(UserError, match="there is no file or folder"):
        open_source(SourceConfig(path=path), labelled=True)


@pytest.mark.parametrize("error", [DatasetGenerationError("An error occurred"), OSError("gone"), ValueError("no")])
def test_a_data_set_that_cannot_be_made_is_told(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the library says is about itself; why it happened stands behind it."""
    error.__cause__ = OSError(28, "No space left on device")
    found = ssl_vit.data.sources.hub._refusal("a/b", "no file a/b", error)
    assert str(found) == "a/b on the Hugging Face Hub: [Errno 28] No space left on device"


def test_what_is_no_failure_of_the_hub_is_a_bug() -> None:
    with pytest.raises(KeyError):
        ssl_vit.data.sources.hub._refusal("a/b", "no file a/b", KeyError("x"))
