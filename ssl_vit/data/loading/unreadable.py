"""The one policy for images that cannot be read: named once, and more than 1 % stop the run."""

from __future__ import annotations

import sys

from ssl_vit.core.dist import gather_lists
from ssl_vit.core.errors import UserError
from ssl_vit.data.images import ImageSet

TOLERATED = 0.01  # share of unreadable images above which a run stops


class UnreadableLog:
    """Names every unreadable image once and stops the run when they are more than 1 % (one is always tolerated)."""

    def __init__(self, images: ImageSet, *, silent: bool = False) -> None:
        """Starts counting; a silent one neither warns nor stops, because another log already does."""
        self.images, self.silent = images, silent
        self.reasons: dict[int, str] = {}

    def listing(self) -> list[str]:
        """Names and reasons, in the order of the set."""
        return [f"{self.images.where(i)} cannot be read ({reason})" for i, reason in sorted(self.reasons.items())]

    def add(self, bad: list[tuple[int, str]], consequence: str) -> None:
        """Counts images and warns about new ones.

        Raises:
            UserError: With the list, when there are too many.
        """
        new = {i: reason for i, reason in bad if i not in self.reasons}
        self.reasons |= new
        allowed = max(1, int(TOLERATED * len(self.images)))
        for i, reason in new.items() if not self.silent and len(self.reasons) <= allowed else ():
            sys.stderr.write(f"warning: {self.images.where(i)} cannot be read ({reason}); {consequence}\n")
        if (len(self.reasons) > allowed or len(self.reasons) == len(self.images)) and not self.silent:
            listing = "\n  ".join(self.listing())
            raise UserError(
                f"{len(self.reasons)} of {len(self.images):,} images cannot be read, more than {TOLERATED:.0%}; "
                f"repair or remove them:\n  {listing}"
            )

    def gather(self) -> None:
        """Learns what other processes found and have warned of (every process must call it)."""
        found = gather_lists([f"{i} {reason}" for i, reason in self.reasons.items()])
        self.reasons |= {int(i): reason for i, _, reason in (line.partition(" ") for line in found)}
        self.add([], "")
