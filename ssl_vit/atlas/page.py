"""An atlas as one page: its own script, no network, nothing beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ssl_vit.atlas.content import FIRST, Atlas, data
from ssl_vit.atlas.findings import NEAR


def page(atlas: Atlas, *, title: str, seen_by: str, notes: Sequence[str]) -> str:
    """The page's text.

    Args:
        atlas: What to show.
        title: How many images of what.
        seen_by: The network, in words.
        notes: Sentences about what is not shown.
    """
    made = Environment(
        loader=PackageLoader("ssl_vit.atlas"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    content = json.dumps(data(atlas), ensure_ascii=False, separators=(",", ":"))
    return made.get_template("atlas.html.j2").render(
        title=title,
        seen_by=seen_by,
        notes=notes,
        atlas=atlas,
        near=NEAR,
        first=FIRST,
        data=Markup(content.replace("<", "\\u003c")),  # a name may hold the end of a script
    )
