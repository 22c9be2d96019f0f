"""Files that are whole or not there, whatever happens while they are written."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import hashlib
import os
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import BinaryIO

from ssl_vit.core.errors import UserError


def own_cache() -> Path:
    """Where this user keeps what is costly to find out: ``SSL_VIT_CACHE``, or the user's cache."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "ssl_vit"
    try:
        return Path(os.environ.get("SSL_VIT_CACHE") or usual).expanduser()
    except RuntimeError:  # a user without a home, as containers have them: kept for as long as this process lives
        return _without_home()


@cache
def _without_home() -> Path:
    return Path(tempfile.mkdtemp(prefix="ssl_vit-"))


def write_atomically(path: Path, text: str) -> None:
    """Writes a file so that a crash leaves the old one or the new one, never half of either."""
    write_bytes_atomically(path, text.encode())


def write_bytes_atomically(path: Path, content: bytes) -> None:
    """As ``write_atomically``, for bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    check_space(path, len(content))
    with whole(path) as file:
        file.write(content)


@contextmanager
def whole(path: Path) -> Generator[BinaryIO, None, None]:
    """A file to write into, which gets its name once all of it is on the disk; nothing is left where that fails.

    Args:
        path: In a folder that exists.

    Raises:
        OSError: Naming the file.
    """
    part = path.with_name(path.name + ".part")
    make_way(part)
    make_way(path)
    try:
        with naming(path), part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def make_way(path: Path, *, folder: bool = False) -> None:
    """Gives another name to what is none where a file is to be written, a folder or a pipe, and says so.

    Args:
        path: Where.
        folder: Whether it is to be a folder instead, and what stands there none.
    """
    if not (path.exists() and not path.is_dir() if folder else path.is_dir() or path.is_fifo()):
        return
    kind = "folder" if path.is_dir() else "file"
    names = (path.with_name(f"{path.name}.{kind}{number or ''}") for number in count())
    aside = next(name for name in names if not name.exists())
    path.rename(aside)
    sys.stderr.write(
        f"warning: {path} is no {'folder' if folder else 'file'}, where one belongs; it is called {aside.name} now\n"
    )


def regular(path: Path) -> Path:
    """The path, where it is no pipe, which would be waited for, no device, which has no end, and no folder.

    Args:
        path: Of a file.

    Raises:
        OSError: Where it is there, but no regular file.
    """
    if path.exists() and not path.is_file():
        raise IsADirectoryError(errno.EISDIR, "no regular file", str(path))
    return path


def content_of(path: Path) -> bytes:
    """What a file holds.

    Args:
        path: Where it is.

    Raises:
        OSError: Where it cannot be read, or is no regular file.
    """
    return regular(path).read_bytes()


@contextmanager
def whole_folder(folder: Path, ending: str = ".part", edited: str = "") -> Generator[Path, None, None]:
    """A folder to write into, which gets its name once all of it is there; nothing is left where that fails.

    Args:
        folder: What is there by that name is replaced.
        ending: Of the name that it has until then.
        edited: A file of it that people add to. Where it is there and all other files are what they would become, the
            folder stays as it is.
    """
    part = folder.with_name(folder.name + ending)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
        if edited and _holds(folder, part, edited):
            shutil.rmtree(part)
            return
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    sync_folder(folder.parent)


def _holds(folder: Path, part: Path, edited: str) -> bool:
    """Whether a folder has all files of another, the same but for one."""
    try:
        return all(
            (folder / file.name).is_file()
            and (file.name == edited or filecmp.cmp(file, folder / file.name, shallow=False))
            for file in part.iterdir()
        )
    except OSError:
        return False


@contextmanager
def naming(path: Path) -> Generator[None, None, None]:
    """Errors of the disk that name no file name this one.

    Args:
        path: What is written.
    """
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def sync_folder(folder: Path) -> None:
    """Has the names in a folder on the disk, too: a file that was renamed may lose its new name with the power.

    Args:
        folder: Exists.
    """
    with contextlib.suppress(OSError):  # not every file system can
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def check_space(path: Path, size: int, largest: int | None = None) -> None:
    """Refuses to write what does not fit, before any of it is written.

    Args:
        path: The file, or folder of several, in a folder that exists.
        size: Bytes, of all files.
        largest: Of the largest file; None for one.

    Raises:
        OSError: As the disk would at the end of it.
    """
    most, largest = resource.getrlimit(resource.RLIMIT_FSIZE)[0], size if largest is None else largest
    if most != resource.RLIM_INFINITY and largest > most:
        raise OSError(errno.EFBIG, f"{os.strerror(errno.EFBIG)}: {largest:,} bytes of {most:,} allowed", str(path))
    total, _, free = shutil.disk_usage(path.parent)
    if total and size > free:  # some network disks tell nothing of themselves
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {size:,} bytes are needed, {free:,} free", str(path))


def append_line(path: Path, line: str) -> None:
    """Adds a line to a file; what a full disk has cut off is taken back.

    Args:
        path: In a folder that exists.
        line: Without its end.

    Raises:
        OSError: Naming the file.
    """
    make_way(path)
    with naming(path), path.open("ab", buffering=0) as file:
        before, content = file.tell(), f"{line}\n".encode()
        try:
            while content:  # a file that is nearly too large takes some of it
                content = content[file.write(content) or 0 :]
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(before)
            raise


def sha256(path: Path) -> str:
    """The hash of a file's content, in hexadecimal digits."""
    if path.is_fifo():
        raise OSError(errno.EINVAL, "it is no file", str(path))
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_address(option: str, given: str) -> None:
    """Refuses ``s3://bucket/run`` and its like where something is written: as a path it is a folder of that name here.

    Args:
        option: Which option names it.
        given: As given.

    Raises:
        UserError: For an address.
    """
    if re.match(r"[A-Za-z][\w+.-]*://", given):
        raise UserError(f"{option} {given} is an address; name a place on a disk, which every process of the job sees")


def check_out(out: str, endings: Sequence[str], *, folders: bool = False) -> Path:
    """The file that ``--out`` names, before anything is computed for it.

    Args:
        out: What was given.
        endings: What it may end in, in small letters.
        folders: Whether those that do not exist are made.

    Raises:
        UserError: For another ending, an address, or a folder that does not exist or cannot be made.
    """
    refuse_address("--out", out)
    path = Path(out).expanduser()
    if path.suffix.lower() not in endings:
        *first, last = endings
        raise UserError(f"--out {out} must end in {', '.join(first)}{' or ' if first else ''}{last}")
    if folders:
        with contextlib.suppress(OSError):  # told below
            path.resolve().parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise UserError(f"--out {out} cannot be written: name a file in a folder that exists")
    return path
