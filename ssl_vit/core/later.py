"""Modules that libraries import and hardly ever use: they are imported when something of them is wanted.

Torch's compiler is the largest: a third of the time in which a script starts. torchvision imports it for one function,
timm and every optimiser to say what must not be compiled. Stand-ins answer such questions until somebody wants more;
then the module itself takes their place, also for whoever holds one of them.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from threading import Lock, get_ident
from types import FunctionType, ModuleType
from typing import Any

Answers = Mapping[str, Mapping[str, Any]]
"""By the name of a stand-in: what it says, by attribute, while the module itself is not there."""


def when_needed() -> None:
    """From now on in this process; what is imported already, or was asked for before, stays as it is."""
    there = {one.name for one in sys.meta_path if isinstance(one, _Later)} | sys.modules.keys()
    late = (_Compiler(), _Later({"wandb": {}}), _Later({"boto3": {}}))  # timm and Accelerate import the latter two
    sys.meta_path[:0] = [one for one in late if one.name not in there]


class _StandIn(ModuleType):
    """A module that knows a few answers, and brings the one it stands for where it does not."""

    _of: _Later

    def __getattr__(self, name: str) -> Any:
        # Whoever looks through all modules wants nothing of this one.
        if name.startswith("__") and name not in ("__all__", "__version__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        answers = self._of.answers[self.__name__]
        if self._of.waits and name in answers:
            return answers[name]
        return getattr(self._of.bring(self.__name__), name)


class _Later(MetaPathFinder, Loader):
    """Where imports look first: finds the stand-ins, and brings what they stand for when more of it is imported."""

    def __init__(self, answers: Answers) -> None:
        """Changes nothing yet.

        Args:
            answers: Of the stand-ins, the outermost module first; the others are inside it.
        """
        self.answers = answers
        self.name = next(iter(answers))
        self.waits = True
        """Whether the stand-ins speak."""
        self._taking = Lock()
        self._bringing = set[int]()
        """Threads that import it now."""
        self._brought: list[Callable[[], None]] = []
        """To be called when it is there."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        """That of a stand-in, or of something inside, which brings the whole; None where others have to look.

        Nothing is imported here: whoever looks for a module holds the lock of all imports.
        """
        if not self.waits or not f"{fullname}.".startswith(f"{self.name}."):
            return None
        real = PathFinder.find_spec(fullname, path, target)
        if real is None or real.loader is None:  # a folder of that name, as wandb leaves them
            return None
        spec = ModuleSpec(fullname, self, origin=real.origin)
        spec.submodule_search_locations = real.submodule_search_locations
        spec.has_location = real.has_location
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A stand-in, or what is inside when the whole is there."""
        if self.waits and spec.name in self.answers:
            made = _StandIn(spec.name)
            made._of = self
            return made
        module = self.bring(spec.name)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: Any) -> None:
        """It is ready; what says how it was loaded was replaced on the way."""
        vars(module)["__spec__"] = module.__spec__.loader_state or module.__spec__  # some refuse attributes

    def bring(self, name: str) -> ModuleType:
        """The module of that name itself, when what the stand-ins stand for has taken their places.

        Raises:
            ImportError: Where it cannot be imported.
        """
        if get_ident() in self._bringing:  # it asks for parts of itself while it is imported
            return importlib.import_module(name)
        with self._taking:  # nothing is imported under it: whoever imports may wait for it
            if self.waits:
                self.waits = False
                for one in self.answers:
                    sys.modules.pop(one, None)
        self._bringing.add(get_ident())
        try:
            for one in self.answers:  # where another thread does it this waits, and where it failed it is tried again
                importlib.import_module(one)
            calls, self._brought = self._brought, []
            for call in calls:
                call()
        finally:
            self._bringing.discard(get_ident())
        return importlib.import_module(name)


class _Compiler(_Later):
    """Torch's, which is asked what must not be compiled, what is, and what can be."""

    def __init__(self) -> None:
        compiler = {"disable": self._disable, "graph_break": lambda *_, **__: None, "eval_frame": _Frames(self)}
        utilities = {"is_compile_supported": self._is_compile_supported}
        super().__init__({"torch._dynamo": compiler, "torch._dynamo.utils": utilities})

    def _disable(self, fn: Any = None, *given: Any, **named: Any) -> Any:
        """Calls a function as it is as long as nothing is compiled, then as the compiler wants it called."""
        if not isinstance(fn, FunctionType):
            return self.bring(self.name).disable(fn, *given, **named)
        now: Callable[..., Any] = fn

        def brought() -> None:
            nonlocal now
            now = sys.modules[self.name].disable(fn, *given, **named)

        @functools.wraps(fn)
        def called(*positional: Any, **keywords: Any) -> Any:
            return now(*positional, **keywords)

        self._brought.append(brought)
        return called

    def _is_compile_supported(self, device_type: Any) -> Any:
        return self.bring("torch._dynamo.utils").is_compile_supported(device_type)


class _Frames:
    """What says whether a network is a compiled one."""

    def __init__(self, of: _Compiler) -> None:
        """Of a compiler that is not there."""
        self._of = of

    def __getattr__(self, name: str) -> Any:
        if self._of.waits and name == "OptimizedModule":
            return _Compiled
        return getattr(self._of.bring("torch._dynamo.eval_frame"), name)


class _Compiled:
    """The kind of a compiled network, while there is none."""
