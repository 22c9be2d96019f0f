"""Torch's compiler, imported when something is compiled: it takes a third of the time in which a script starts.

torchvision imports it for one function, timm and every optimiser to say what must not be compiled. Until somebody wants
more of it, stand-ins answer these questions; then it takes their place, also for whoever holds one of them.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

_NAME = "torch._dynamo"
_UTILS = f"{_NAME}.utils"


def when_needed() -> None:
    """From now on in this process; where it is imported already, or this was said before, nothing changes."""
    if _NAME not in sys.modules and not any(isinstance(one, _Compiler) for one in sys.meta_path):
        sys.meta_path.insert(0, _Compiler())


class _StandIn(ModuleType):
    """A module that knows what can be said while nothing is compiled, and brings the compiler for all else."""

    _of: _Compiler
    _known: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # whoever looks through all modules wants nothing of this one
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if self._of.waits and name in self._known:
            return self._known[name]
        return getattr(self._of.bring(self.__name__), name)


class _Compiler(MetaPathFinder, Loader):
    """Where imports look first: finds the stand-ins, and brings the compiler for whatever else is imported of it."""

    def __init__(self) -> None:
        self.waits = True
        """Whether the stand-ins speak."""
        self._lock = RLock()
        self._brought: list[Callable[[], None]] = []
        """To be called when it is there."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """A stand-in's, or that of what has been brought; None where others have to look."""
        if not self.waits or not f"{fullname}.".startswith(f"{_NAME}."):
            return None
        if fullname not in (_NAME, _UTILS):
            self.bring(_NAME)
            return ModuleSpec(fullname, _Brought()) if fullname in sys.modules else None
        real = PathFinder.find_spec(fullname, path, target)
        if real is None:
            return None
        spec = ModuleSpec(fullname, self, origin=real.origin)
        spec.submodule_search_locations = real.submodule_search_locations
        spec.has_location = real.has_location
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A stand-in."""
        return _StandIn(spec.name)

    def exec_module(self, module: Any) -> None:
        """What it knows."""
        module._of = self
        module._known = (
            {"is_compile_supported": self._is_compile_supported}
            if module.__name__ == _UTILS
            else {
                "disable": self._disable,
                "graph_break": lambda *_, **__: None,
                "eval_frame": SimpleNamespace(OptimizedModule=_Compiled),
            }
        )

    def bring(self, name: str) -> ModuleType:
        """The module of that name itself, when it has taken the place of its stand-in.

        Raises:
            ImportError: Where it cannot be imported.
        """
        with self._lock:
            if self.waits:
                self.waits = False
                sys.meta_path.remove(self)
                for one in (_UTILS, _NAME):
                    sys.modules.pop(one, None)
                importlib.import_module(_UTILS)
                for call in self._brought:
                    call()
        return sys.modules[name]

    def _disable(self, fn: Any = None, *given: Any, **named: Any) -> Any:
        """Calls a function as it is as long as nothing is compiled, then as the compiler wants it called."""
        if not isinstance(fn, FunctionType):
            return self.bring(_NAME).disable(fn, *given, **named)
        now: Callable[..., Any] = fn

        def brought() -> None:
            nonlocal now
            now = sys.modules[_NAME].disable(fn, *given, **named)

        @functools.wraps(fn)
        def called(*positional: Any, **keywords: Any) -> Any:
            return now(*positional, **keywords)

        self._brought.append(brought)
        return called

    def _is_compile_supported(self, device_type: Any) -> Any:
        return self.bring(_UTILS).is_compile_supported(device_type)


class _Compiled:
    """The kind of a compiled network, while there is none."""


class _Brought(Loader):
    """Of a module that was imported while it was looked for."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """That module."""
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """It is ready."""
