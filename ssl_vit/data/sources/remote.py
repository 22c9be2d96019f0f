"""Tar shards and parquet files in object storage (s3://) or on the hub (hf://), read in place through a local cache.

A file is read in blocks of some megabytes at the positions that are asked for. To find where images lie, tar shards are
read once from end to end, and parquet files at their ends alone. Blocks are kept on the local disk, the least recently
read ones go when the cache is full. What does not arrive, or not whole, is asked for again; what still does not ends
the run, because an image that is replaced would make it another run.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from ssl_vit.core.errors import UserError
from ssl_vit.core.files import own_cache, write_bytes_atomically
from ssl_vit.core.notices import say_once

T = TypeVar("T")

ENDINGS = (".tar", ".parquet")
"""Where both lie in one folder the first is read: tables beside shards often tell of the images in them."""
BLOCK = 4 * 2**20
"""Bytes that are asked for at a time."""
CACHE_SIZE = 20.0
"""Gigabytes that are kept where ``--data.cache_size`` does not say."""
TRIES = 7
"""How often something is asked for; the waits between them come to half a minute."""
PATIENCE = 30.0
"""Seconds without an answer after which s3:// is asked again."""
_ADDRESS = re.compile(r"s3://[^/]+.*|hf://((datasets|spaces|buckets)/)?+[^/]+/[^/]+.*")
_FIRST_WAIT = 0.5
_LOCK = ".lock"
"""The file that one process at a time holds while it makes room and keeps a block."""
_wait = time.sleep


class Unreachable(UserError):
    """Object storage did not give what it should have; the run ends, and goes on when it does again."""

    def __init__(self, message: str) -> None:
        """Takes the sentence, also out of the traceback in which torch hands it over from another process."""
        super().__init__(message.strip().rpartition("Unreachable: ")[2])


class RemoteFolder(str):
    """Where files lie, for messages, and for tables that name files of theirs."""

    def __truediv__(self, name: str) -> Path:
        """What a file in it is called."""
        return Path(f"{self}/{name}")


@dataclass(frozen=True)
class RemoteFile:
    """A file that is elsewhere, with as much of ``pathlib.Path`` as readers of shards and tables ask for."""

    url: str
    size: int
    version: str
    """What changes with its content, where the storage says so."""
    cache: BlockCache

    @property
    def name(self) -> str:
        """Behind the last slash."""
        return self.url.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The name without its ending."""
        return Path(self.name).stem

    @property
    def suffix(self) -> str:
        """The ending, with its dot."""
        return Path(self.name).suffix

    @property
    def parent(self) -> RemoteFolder:
        """What is before the name."""
        return RemoteFolder(self.url.rpartition("/")[0])

    def __str__(self) -> str:
        """The whole address."""
        return self.url

    def stat(self) -> SimpleNamespace:
        """``st_size`` in bytes."""
        return SimpleNamespace(st_size=self.size)

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """The content, at any position; every process opens it for itself."""
        assert mode == "rb", "files that are elsewhere are read only"
        return io.BufferedReader(_Reading(self), 2**16)

    def read_at(self, start: int, count: int) -> bytes:
        """Bytes from a position on, fewer at the end.

        Raises:
            Unreachable: Where they do not come.
        """
        stop = min(self.size, start + count)
        found: list[bytes] = []
        while start < stop:
            number = start // BLOCK
            inside = start - number * BLOCK
            found.append(self.cache.part(self, number, inside, min(BLOCK, inside + stop - start)))
            start += len(found[-1])
        return b"".join(found)


class _Reading(io.RawIOBase):
    """A position in a file that is elsewhere."""

    def __init__(self, file: RemoteFile) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._file.size}[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:
        room = memoryview(buffer).cast("B")
        found = self._file.read_at(self._at, len(room))
        room[: len(found)] = found
        self._at += len(found)
        return len(found)


class BlockCache:
    """Blocks on the local disk that all processes of the machine share, at most so many bytes of them."""

    def __init__(self, folder: Path, most: int) -> None:
        """Makes the folder when there is something to keep.

        Args:
            folder: Of blocks alone.
            most: Bytes; a block that is larger is not kept.
        """
        self.folder, self.most = folder, most

    def part(self, file: RemoteFile, number: int, start: int, stop: int) -> bytes:
        """Some bytes of one block of a file, from the disk or from where the file is.

        Args:
            file: Which.
            number: Of the block, from 0.
            start: Within the block.
            stop: Behind the last one; at most the block's end.
        """
        size = min(BLOCK, file.size - number * BLOCK)
        name = hashlib.sha256(f"{file.url}\0{file.version}\0{file.size}\0{BLOCK}".encode()).hexdigest()[:32]
        path = self.folder / f"{name}-{number:06d}"
        with suppress(OSError), path.open("rb") as kept:
            kept.seek(start)
            found = kept.read(stop - start)
            if os.fstat(kept.fileno()).st_size == size and len(found) == stop - start:
                with suppress(OSError):  # another process may have removed it meanwhile
                    os.utime(path)
                return found
        content = _unkept.get(path)
        if content is None:
            content = fetched(file.url, number * BLOCK, size)
            if not self._keep(path, content):
                _unkept.clear()
                _unkept[path] = content
        return content[start:stop]

    def _keep(self, path: Path, content: bytes) -> bool:
        """Whether there was room; a full disk keeps nobody from reading."""
        with suppress(OSError):
            if len(content) <= self.most:
                self._write(path, content)
                return True
        return False

    def _write(self, path: Path, content: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / _LOCK).open("wb") as lock:  # gone with the process, whatever ends it
            with suppress(OSError):  # a disk without locks: each process keeps to the bound for itself
                fcntl.flock(lock, fcntl.LOCK_EX)
            self._make_room(len(content))
            write_bytes_atomically(path, content)

    def _make_room(self, wanted: int) -> None:
        """Removes the blocks that were read longest ago until nine tenths are left, where there is no room."""
        found = list[tuple[float, int, Path]]()
        for path in self.folder.iterdir():
            with suppress(OSError):  # a user may have removed it
                about = path.stat()
                found.append((about.st_mtime, about.st_size, path))
        total = sum(size for _, size, _ in found)
        if total + wanted <= self.most:
            return
        for _, size, path in sorted(found):
            if total + wanted <= 0.9 * self.most:
                break
            if path.name != _LOCK:
                with suppress(OSError):
                    path.unlink()
                total -= size


_unkept: dict[Path, bytes] = {}
"""The last block of this process that the disk does not keep: files are read in parts that are much smaller."""


def fetched(url: str, start: int, count: int) -> bytes:
    """So many bytes of a file from a position on, asked for again where they do not come or are too few.

    Raises:
        Unreachable: Where they do not come at all, with the last reason.
    """

    def part() -> bytes:
        found: bytes = _storage(url).cat_file(_inside(url), start=start, end=start + count)
        if len(found) != count:
            raise _Cut(f"{len(found):,} of {count:,} bytes came")
        return found

    return _asked(url, part)


def remote_files(path: str, cache_size: float | None) -> tuple[list[RemoteFile], str]:
    """The tar or parquet files at an address, in the order of their names, and their ending.

    Args:
        path: Of a file, or of what is a folder there.
        cache_size: Gigabytes of blocks to keep; None for the usual.

    Raises:
        UserError: Where nothing that can be read is there, or it may not be read.
    """
    scheme, place = path.partition("://")[0], path.rstrip("/")
    if _ADDRESS.fullmatch(path) is None:
        raise UserError(f"{path} is no whole address; give s3://BUCKET/FOLDER or hf://datasets/OWNER/NAME")
    names = _asked(path, lambda: _listed(place))
    for ending in ENDINGS:
        files = sorted(name.lstrip("/") for name in names if name.endswith(ending))
        if files:
            for other in (one for one in ENDINGS if one != ending):
                if unread := sum(name.endswith(other) for name in names):
                    say_once(f"note: images are read from {ending} files in {path}; {unread:,} {other} file(s) are not")
            return [described(f"{scheme}://{name}", cache_size) for name in files], ending
    some = ", ".join(sorted(name.rpartition("/")[2] for name in names)[:5])
    raise UserError(
        f"{path} holds no {' or '.join(ENDINGS)} files{f' (there: {some})' if some else ''}; other images are read "
        "from a folder of this machine"
    )


def _listed(place: str) -> list[str]:
    """Names of what lies directly at an address, as the storage has them now."""
    storage = _storage(place)
    storage.invalidate_cache()  # fsspec remembers lists, with sizes and versions, as long as the process lives
    if place.endswith(ENDINGS):
        return [_inside(place)] if storage.exists(_inside(place)) else []
    found: Any = storage.ls(_inside(place), detail=True)
    return [str(one["name"]) for one in found if one["type"] == "file"]


def described(url: str, cache_size: float | None) -> RemoteFile:
    """A file at an address.

    Args:
        url: Of the file.
        cache_size: As for ``remote_files``.

    Raises:
        UserError: Where it is not there, or may not be read.
    """
    about: Any = _asked(url, lambda: _storage(url).info(_inside(url)))
    version = str(about.get("ETag") or about.get("blob_id") or about.get("mtime") or "")
    return RemoteFile(url, int(about["size"]), version, block_cache(cache_size))


def block_cache(cache_size: float | None) -> BlockCache:
    """The cache of this machine: below ``SSL_VIT_CACHE``, or the user's cache."""
    return BlockCache(own_cache() / "objects", int(1e9 * (CACHE_SIZE if cache_size is None else cache_size)))


File = Path | RemoteFile
"""A file of images, here or elsewhere."""
Place = Path | RemoteFolder
"""Where such files lie."""


def for_arrow(file: File) -> Path | io.BufferedReader:
    """What pyarrow reads a file from: its path, or an open file where it is elsewhere."""
    return file.open("rb") if isinstance(file, RemoteFile) else file


def _inside(url: str) -> str:
    return url.partition("://")[2]


def _storage(url: str) -> Any:
    """What speaks to a storage; made anew in every process, because its connections belong to one."""
    scheme = url.partition("://")[0]
    import fsspec

    if scheme != "s3":
        return fsspec.filesystem(scheme)
    try:
        # Repetitions are counted here, and a server that says nothing is not waited for by the minute.
        patience = {"connect_timeout": PATIENCE, "read_timeout": PATIENCE, "retries": {"total_max_attempts": 1}}
        address = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        storage: Any = fsspec.filesystem(scheme, config_kwargs=patience, endpoint_url=address)
    except ImportError as error:
        raise UserError("s3:// needs s3fs: pip install 'ssl_vit[s3]'") from error
    storage.retries = 1
    return storage


def _asked(url: str, ask: Callable[[], T]) -> T:
    """What a storage answers, asked again where nothing comes or not all of it, and in one line where it refuses."""
    why = ""
    for attempt in range(TRIES):
        if attempt:
            say_once(f"note: {url} did not answer ({why}); it is asked up to {TRIES} times")
            _wait(_FIRST_WAIT * 2 ** (attempt - 1))
        try:
            return ask()
        except UserError:
            raise
        except FileNotFoundError as error:
            raise UserError(f"there is nothing at {url}; check the address") from error
        except PermissionError as error:
            raise UserError(
                f"{url} may not be read ({_words(error)}); give credentials as the storage's own tools take them "
                "(AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; hf auth login)"
            ) from error
        except Exception as error:
            if not _on_the_way(error):
                raise
            why = _words(error)
    raise Unreachable(
        f"{url} cannot be read ({why}), though it was asked for {TRIES} times; check the address and the network. "
        "Everything up to the last checkpoint is safe, and the same command goes on once the storage answers"
    )


class _Cut(OSError):
    """An answer that is not whole."""


_LIBRARIES = ("botocore", "aiobotocore", "aiohttp", "s3fs", "fsspec", "httpx", "requests", "urllib3", "huggingface_hub")


def _on_the_way(error: Exception) -> bool:
    """Whether an error is the network's or the storage's, and no mistake of this program."""
    return isinstance(error, (OSError, TimeoutError)) or type(error).__module__.partition(".")[0] in _LIBRARIES


def _words(error: BaseException) -> str:
    return " ".join(f"{error or type(error).__name__}".split())[:300]
