"""Names on the Hugging Face Hub, with a tiny hub on this machine: found, not found, unreachable, in the cache."""

from __future__ import annotations

import http.server
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import ssl_vit.data.sources.hub
from PIL import Image
from ssl_vit.configs import SourceConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.sources.locate import open_source

SHA = "0" * 39 + "1"
ASK = """
import os, sys
from ssl_vit.configs import SourceConfig
from ssl_vit.data.sources.locate import open_source
from ssl_vit.core.errors import UserError
stream = True if "STREAM" in os.environ else None
for path in sys.argv[1:]:
    try:
        for name, part in open_source(SourceConfig(path=path, stream=stream), labelled=True).items():
            print(path, name, len(part.rows), part.rows.raw(0)[:4], part.labels.tolist())
    except UserError as error:
        print("refused:", error)
"""


def table() -> bytes:
    file = io.BytesIO()
    Image.new("L", (4, 4)).save(file, "PNG")
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"image": [file.getvalue()] * 3, "label": [0, 1, 0]}), out)
    return out.getvalue()


class Hub(http.server.BaseHTTPRequestHandler):
    """One data set of one file, one behind a login; all else is unknown."""

    files = {"train.parquet": table()}  # noqa: RUF012 - read only
    ranges: list[tuple[int, int]] = []  # noqa: RUF012 - of all of them

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._say(200, json.dumps([self._entry(name) for name in self.files]).encode())

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/api/datasets/secret/"):
            return self._say(403, b"{}", {"X-Error-Code": "GatedRepo"})
        if path.startswith("/api/datasets/tiny/pets/tree/"):
            return self._say(200, json.dumps([self._entry(name) for name in self.files]).encode())
        if path.startswith("/api/datasets/tiny/pets"):
            siblings = [{"rfilename": name} for name in self.files]
            about = {"id": "tiny/pets", "sha": SHA, "siblings": siblings, "private": False, "gated": False, "tags": []}
            return self._say(200, json.dumps(about).encode())
        name = path.rpartition("/")[2]
        if path.startswith(f"/datasets/tiny/pets/resolve/{SHA}/") and name in self.files:
            return self._part(self.files[name], {"ETag": '"abc"', "X-Repo-Commit": SHA})
        code = "EntryNotFound" if path.startswith("/datasets/tiny/pets/") else "RepoNotFound"
        return self._say(404, b"{}", {"X-Error-Code": code, "X-Repo-Commit": SHA})

    def _part(self, whole: bytes, headers: dict[str, str]) -> None:
        """The bytes that were asked for."""
        wanted = self.headers.get("Range")
        if wanted is None or self.command == "HEAD":
            return self._say(200, whole, {**headers, "Accept-Ranges": "bytes"})
        first, last = (int(number) for number in wanted.removeprefix("bytes=").split("-"))
        self.ranges.append((first, last))
        part = whole[first : last + 1]
        return self._say(206, part, {**headers, "Content-Range": f"bytes {first}-{first + len(part) - 1}/{len(whole)}"})

    def _entry(self, name: str) -> dict[str, object]:
        return {"type": "file", "path": name, "size": len(self.files[name]), "oid": "abc"}

    def _say(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def hub() -> Iterator[http.server.ThreadingHTTPServer]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def asked(*paths: str, endpoint: str, cwd: Path, **environment: str) -> list[str]:
    """What a process of its own says about paths: the hub's address is read when its client is imported."""
    known = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING")) and "proxy" not in k.lower()}
    known |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(cwd / "cache"), "NO_PROXY": "*", "HF_HUB_DISABLE_XET": "1"}
    known |= {"HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    done = subprocess.run(
        [sys.executable, "-c", ASK, *paths], cwd=cwd, env=known, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


NOWHERE = "http://127.0.0.1:1"  # nothing listens there
FOUND = "tiny/pets train 3 b'\\x89PNG' [0, 1, 0]"


@pytest.mark.processes
def test_a_hub_that_answers_and_then_is_gone(hub: http.server.ThreadingHTTPServer, tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{hub.server_port}"
    found, unknown, secret = asked("tiny/pets", "tiny/dogs", "secret/pets", endpoint=address, cwd=tmp_path)
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
    hub: http.server.ThreadingHTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hub, "ranges", [])
    environment = {"SSL_VIT_CACHE": str(tmp_path / "blocks"), "STREAM": "1"}
    (found,) = asked("tiny/pets", endpoint=f"http://127.0.0.1:{hub.server_port}", cwd=tmp_path, **environment)
    assert found == FOUND
    assert Hub.ranges == [(0, len(Hub.files["train.parquet"]) - 1)]  # one block, once
    assert not list((tmp_path / "cache").rglob("*.parquet"))
    assert len(list((tmp_path / "blocks" / "objects").iterdir())) == 1


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
