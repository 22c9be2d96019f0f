"""Every module of the package can be imported, whether or not another one does."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
import ssl_vit

MODULES = [found.name for found in pkgutil.walk_packages(ssl_vit.__path__, "ssl_vit.") if "__main__" not in found.name]


@pytest.mark.parametrize("name", MODULES)
def test_it_is_imported(name: str) -> None:
    assert importlib.import_module(name).__doc__, f"{name} does not say what it is about"
