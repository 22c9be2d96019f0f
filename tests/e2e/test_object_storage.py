"""Images in s3://, on a server of this machine that fails now and then: the same run as on images of a disk."""

from __future__ import annotations

import http.client
import http.server
import io
import subprocess
import sys
import tarfile
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from made_processes import Warm
from made_streamed import PROGRAM, WORDS

pytest.importorskip("s3fs")
pytest.importorskip("moto")

ROOT = Path(__file__).resolve().parents[2]
SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""


class Faulty(http.server.BaseHTTPRequestHandler):
    """Hands requests on to a server, but every so often fails to give a part of an object."""

    protocol_version = "HTTP/1.1"
    port = 0
    faults = ()
    """What goes wrong: of every tenth part the next of these."""
    parts = 0
    over = threading.Event()
    lock = threading.Lock()

    def _hand_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        there = http.client.HTTPConnection("127.0.0.1", self.port)
        there.request(self.command, self.path, body, dict(self.headers))
        answer = there.getresponse()
        content = answer.read()
        there.close()
        headers = {k: v for k, v in answer.getheaders() if k.lower() not in ("transfer-encoding", "connection")}
        self._answer(answer.status, headers, content)

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() != "content-length" or self.command == "HEAD":
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_HEAD = do_PUT = do_POST = _hand_on

    def do_GET(self) -> None:
        kind = type(self)
        if "Range" not in self.headers or not kind.faults:
            return self._hand_on()
        with kind.lock:
            kind.parts += 1
            fault = kind.faults[kind.parts // 10 % len(kind.faults)] if kind.parts % 10 == 0 else None
        if fault == "500":
            return self._answer(500, {}, b"<Error><Code>InternalError</Code></Error>")
        if fault == "nothing comes":
            kind.over.wait()
            self.close_connection = True
            return None
        if fault == "half of it":
            self.send_response(206)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            self.wfile.write(b"x" * 500)
            self.close_connection = True
            return None
        return self._hand_on()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """Shards of a folder, and the port of the server that has them as s3://images/shards."""
    folder = tmp_path_factory.mktemp("here")
    rng = np.random.default_rng(0)
    for shard in range(4):
        with tarfile.open(folder / f"{shard}.tar", "w") as tar:
            for i in range(30):
                out = io.BytesIO()
                Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(out, "PNG")
                info = tarfile.TarInfo(f"{shard}{i:03d}.png")
                info.size = out.tell()
                out.seek(0)
                tar.addfile(info, out)
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as one:
        assert one.stdin
        assert one.stdout
        port = int(one.stdout.readline())
        objects = {f"images/shards/{file.name}": file.read_bytes() for file in folder.iterdir()}
        for place, content in {"images": b"", **objects}.items():
            request = urllib.request.Request(f"http://127.0.0.1:{port}/{place}", content, method="PUT")
            request.add_header("Content-Type", "application/octet-stream")
            urllib.request.urlopen(request).close()
        yield folder, port
        one.stdin.close()


@pytest.fixture
def faulty(bucket: tuple[Path, int]) -> Iterator[tuple[type[Faulty], str]]:
    kind = type("Now", (Faulty,), {"port": bucket[1], "parts": 0, "over": threading.Event()})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield kind, f"http://127.0.0.1:{server.server_port}"
    kind.over.set()
    server.shutdown()
    server.server_close()


def run(warm: Warm, cwd: Path, data: str, name: str, address: str, *words: str, at: int = -1):
    program = cwd / "program.py"
    program.write_text(PROGRAM)
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    return warm(
        program, str(at), str(ROOT / "recipes/mae.py"), *WORDS, "--data.path", data, *words, "--run.dir", name,
        cwd=cwd, AWS_ENDPOINT_URL=address, SSL_VIT_CACHE=str(cwd / "cache"), **keys,
    )  # fmt: skip


@pytest.fixture(scope="module")
def here(bucket: tuple[Path, int], warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of the shards on a disk, however many processes load them."""
    folder = tmp_path_factory.mktemp("disk")
    loading = ["--data.stream", "true", "--data.workers", "0"]
    done = run(warm, folder, str(bucket[0]), "run", "http://127.0.0.1:1", *loading)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "run"


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_on_s3_is_that_on_a_disk_whatever_fails(
    workers: str, here: Path, faulty: tuple[type[Faulty], str], warm: Warm, tmp_path: Path
) -> None:
    kind, address = faulty
    loading = ["--data.stream", "true", "--data.workers", workers]
    kind.faults = ("500", "half of it", "nothing comes")
    small = ["--data.cache_size", "0.0001"]  # 100 kB of 300: blocks come and go
    killed = run(warm, tmp_path, "s3://images/shards", "there", address, *loading, *small, at=9)
    assert killed.returncode == -9, killed.stderr[-3000:]
    again = run(warm, tmp_path, "s3://images/shards", "there", address, *loading, *small)
    assert again.returncode == 0, again.stderr[-3000:]
    assert "continues after step 6" in again.stdout
    assert kind.parts > 3 * 10
    for name in ("metrics.jsonl", "backbone/model.safetensors"):
        assert (tmp_path / "there" / name).read_bytes() == (here / name).read_bytes()
    left = [path.stat().st_size for path in (tmp_path / "cache" / "objects").iterdir()]
    assert 0 < sum(left) <= 100_000


def test_a_server_that_never_answers_ends_the_run_with_one_line(
    bucket: tuple[Path, int], faulty: tuple[type[Faulty], str], warm: Warm, tmp_path: Path
) -> None:
    kind, address = faulty

    def never(self: Faulty) -> None:
        if "Range" in self.headers:
            return self._answer(500, {}, b"<Error><Code>InternalError</Code></Error>")
        return self._hand_on()

    kind.do_GET = never  # type: ignore[method-assign]
    done = run(warm, tmp_path, "s3://images/shards", "r", address, "--data.workers", "0")
    assert done.returncode == 1
    assert "error: s3://images/shards/0.tar cannot be read (" in done.stderr
    assert "though it was asked for 7 times" in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_addresses_are_told(bucket: tuple[Path, int], faulty, warm: Warm, tmp_path: Path) -> None:
    for path, told in (("s3://images/nothing", "there is nothing at s3://images/nothing"),
                       ("s3://nobodys/shards", "there is nothing at s3://nobodys/shards")):  # fmt: skip
        done = run(warm, tmp_path, path, "r", faulty[1])
        assert done.returncode == 1, done.stderr
        assert f"error: {told}" in done.stderr
        assert "Traceback" not in done.stderr
