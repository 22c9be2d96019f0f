"""Shapes and types are checked at run time in every test of the package."""

from __future__ import annotations

from jaxtyping import install_import_hook

install_import_hook("ssl_vit", "beartype.beartype")
