"""Files of weights from strangers: tensors are read, code never is."""

from __future__ import annotations

import argparse
import hashlib
import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from ssl_vit.core.errors import UserError

State = dict[str, Tensor]
"""Tensors by name."""

_NESTS = ("teacher", "model_ema", "model", "state_dict", "student")
"""What weights lie under, beside optimiser and options; of DINO's two networks its authors judge the teacher."""
_WRAPPERS = ("module.", "_orig_mod.")
"""What torch puts before every name, for several processes and for compiled networks."""
_DEEPEST = 8
"""Groups within groups that are looked into: a file may hold itself."""


def read_state(path: Path) -> State:
    """The tensors of a file of weights, without what training keeps beside them.

    Args:
        path: Written by ``torch.save`` or safetensors.

    Raises:
        UserError: For a file that cannot be read, or only by running code that lies in it, or without weights.
    """
    content: Any = _read(path)
    for _ in range(_DEEPEST):
        inner = isinstance(content, Mapping) and next(
            (content[name] for name in _NESTS if isinstance(content.get(name), Mapping)), None
        )
        content = inner or content
    if not isinstance(content, Mapping):
        raise UserError(f"{path} holds a {type(content).__name__} and no weights by name; save a state dict instead")
    state = {_unwrapped(str(name)): value for name, value in content.items() if isinstance(value, Tensor)}
    if not state:
        parts = ", ".join(map(str, [*content][:5])) or "nothing"
        raise UserError(f"{path} holds no weights by name, but {parts}; expected a state dict, alone or in 'model'")
    for name, value in state.items():
        if value.layout != torch.strided or value.is_meta or value.is_quantized:
            raise UserError(
                f"{path}: {name} is sparse, quantised or without numbers; save the weights as plain tensors"
            )
    return _of_one(state)


def _read(path: Path) -> Any:
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        # The options of MAE's and DINO's training are kept in a Namespace, which is data alone.
        with torch.serialization.safe_globals([argparse.Namespace]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Detected pickle protocol")  # it is read, or refused in a line
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if found := re.search(r"GLOBAL (\w[\w.]*\w)", str(error)):
            raise UserError(
                f"{path} is not read: it holds Python's {found[1]} beside its tensors, and reading that could run "
                "code; have its state dict saved alone, best as .safetensors"
            ) from error
        if "Unsupported operand" in str(error):
            raise UserError(
                f"{path} is not read: it is a pickle that torch.save did not write, and reading that could run code; "
                "have its state dict saved alone, best as .safetensors"
            ) from error
        raise UserError(f"{path} cannot be read as weights of torch; download or copy it again") from error
    except (OSError, RuntimeError, safetensors.SafetensorError) as error:
        line = str(error).strip().partition("\n")[0]
        raise UserError(f"{path} cannot be read as weights ({line}); download or copy it again") from error
    except Exception as error:  # whatever torch's readers raise at half a file
        raise UserError(f"{path} cannot be read as weights of torch; download or copy it again") from error


def _unwrapped(name: str) -> str:
    while name.startswith(_WRAPPERS):
        name = name.partition(".")[2]
    return name


def _of_one(state: State) -> State:
    """One of several networks that lie side by side by the first part of their names, as those under it do."""
    parts = {name.partition(".")[0] for name in state}
    if not parts <= {*_NESTS}:
        return state
    chosen = next(nest for nest in _NESTS if nest in parts)
    return {
        _unwrapped(name.removeprefix(f"{chosen}.")): value
        for name, value in state.items() if name.startswith(f"{chosen}.")
    }  # fmt: skip


def digest(state: Mapping[str, Tensor]) -> str:
    """16 hexadecimal digits that tell a network: those of the model.safetensors that it would be exported as.

    Args:
        state: As it is exported.
    """
    return hashlib.sha256(safetensors.torch.save(dict(state), metadata={"format": "pt"})).hexdigest()[:16]
