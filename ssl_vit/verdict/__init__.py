"""Does pre-training pay on these images? Plans, makes and keeps every number that the report stands on."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """The room has the name of the function ``ssl_vit.verdict``, and is called in its place once it is imported."""

    def __call__(self, **options: Any) -> Any:
        return import_module("ssl_vit.face").verdict(**options)


sys.modules[__name__].__class__ = _Callable
