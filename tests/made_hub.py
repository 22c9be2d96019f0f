"""A tiny Hugging Face hub on this machine: one data set, one behind a login; answers that fail when told to."""

from __future__ import annotations

import http.server
import io
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow
import pyarrow.parquet
from PIL import Image

SHA = "0" * 39 + "1"


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
    faults: list[str] = []  # noqa: RUF012 - what goes wrong of the next parts of files, one after another
    lists: list[str] = []  # noqa: RUF012 - and of the next lists of files

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
            if self.lists:
                return self._say(int(self.lists.pop(0)), b"{}")
            return self._say(200, json.dumps([self._entry(name) for name in self.files]).encode())
        if path.startswith("/api/datasets/tiny/pets"):
            siblings = [{"rfilename": name} for name in self.files]
            about = {"id": "tiny/pets", "sha": SHA, "siblings": siblings, "private": False, "gated": False, "tags": []}
            return self._say(200, json.dumps(about).encode())
        name = path.rpartition("/")[2]
        files = tuple(f"/datasets/tiny/pets/resolve/{version}/" for version in (SHA, "main"))
        if path.startswith(files) and name in self.files:
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
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "half of it":
            last = (first + last) // 2
        elif fault:
            return self._say(int(fault), b"{}")
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


@contextmanager
def serving(kind: type[Hub] = Hub) -> Iterator[str]:
    """The address of a hub, while it is there."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def environment(endpoint: str, folder: Path) -> dict[str, str]:
    """Of a process that knows no other hub, whose cache is in a folder."""
    known = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING")) and "proxy" not in k.lower()}
    known |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(folder / "cache"), "NO_PROXY": "*", "HF_HUB_DISABLE_XET": "1"}
    return known | {"HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
