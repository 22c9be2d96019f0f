"""SHA256SUMS beside files, in the form that the program ``sha256sum -c`` reads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ssl_vit.core.files import content_of, sha256, write_atomically

NAME = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


def note(folder: Path, names: Iterable[str]) -> None:
    """Writes down the hashes of some files of a folder, beside those that stand there; which are gone is forgotten.

    Args:
        folder: Exists.
        names: Of files in it.
    """
    known = {name: digest for name, digest in read(folder).items() if (folder / name).is_file()}
    known |= {name: sha256(folder / name) for name in names}
    write_atomically(folder / NAME, "".join(f"{known[name]}  {name}\n" for name in sorted(known)))


def read(folder: Path) -> dict[str, str]:
    """The hashes that were written down of files of a folder, by name.

    Args:
        folder: Any.
    """
    return hashes(folder / NAME)


def hashes(file: Path) -> dict[str, str]:
    """The hashes in a file of that form, by name; what is no such line is left out.

    Args:
        file: Any.
    """
    try:
        return hashes_of(content_of(file))
    except OSError:
        return {}


def hashes_of(content: bytes) -> dict[str, str]:
    """As ``hashes``, of what was read already.

    Args:
        content: Of a file of that form.
    """
    found = (_LINE.fullmatch(line) for line in content.decode(errors="replace").splitlines())
    return {match[2]: match[1] for match in found if match and "/" not in match[2]}
