"""Every random number of a run: a hash of (seed, purpose, words..., counter), never of hidden state.

A draw is the same on any number of processes, loader workers, micro-batches or restarts. The hash works on 32-bit
integers, exact and fast on every device; two independently keyed rounds make the 64-bit key. On the host NumPy computes
what is short: it has unsigned integers, and asks less for an operation. Longer draws are torch's, on several threads.
"""

from __future__ import annotations

import zlib
from itertools import takewhile
from typing import NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float, Int, UInt32
from torch import Tensor

Words = UInt32[np.ndarray, "*S"]
"""Integers of 32 bits on the host."""
_SHORT = 1 << 16
"""Numbers up to which NumPy draws them on the host."""

_GOLDEN = 0x9E3779B9 - 2**32  # 2**32 / golden ratio, as a signed 32-bit integer
_LANES = (0x243F6A88, 0x85A308D3 - 2**32)  # digits of pi: the two halves of a key must start apart


def _mix(x: Int[Tensor, "*S"]) -> Int[Tensor, "*S"]:
    """The 32-bit finaliser "lowbias32": a bijection; every input bit flips every output bit about half the time."""
    x = x ^ (x >> 16).bitwise_and_(0xFFFF)
    x *= 0x7FEB352D
    x ^= (x >> 15).bitwise_and_(0x1FFFF)
    x *= 0x846CA68B - 2**32
    x ^= (x >> 16).bitwise_and_(0xFFFF)
    return x


def _mix_words(x: Words) -> Words:
    """``_mix`` on the host, in place."""
    x ^= x >> 16
    x *= np.uint32(0x7FEB352D)
    x ^= x >> 15
    x *= np.uint32(0x846CA68B)
    x ^= x >> 16
    return x


def _words(x: Tensor) -> Words:
    """The low 32 bits of integers on the host."""
    return x.detach().numpy().astype(np.uint32)


def _tensor(x: Words) -> Int[Tensor, "*S"]:
    return torch.from_numpy(x.view(np.int32))  # pyright: ignore[reportUnknownMemberType]


def _mix_integer(x: int) -> int:
    """``_mix`` of a Python integer, as the unsigned word."""
    x ^= x >> 16
    x = x * 0x7FEB352D & 0xFFFFFFFF
    x ^= x >> 15
    x = x * 0x846CA68B & 0xFFFFFFFF
    return x ^ (x >> 16)


def _signed(word: int) -> int:
    word &= 0xFFFFFFFF
    return word - 2**32 if word >= 2**31 else word


class Key(NamedTuple):
    """64 bits per sample that name one stream of random numbers."""

    low: Int[Tensor, " B"]
    high: Int[Tensor, " B"]


def make_key(seed: int, purpose: str, *words: int | Tensor, device: torch.device | str = "cpu") -> Key:
    """Hashes a seed, a purpose and any number of words into a key.

    Args:
        seed: The run's, any integer up to 64 bits.
        purpose: What the numbers are for, such as ``"mask"``; other purposes are independent.
        *words: Integers or Int[Tensor, "B"] (for example epoch and sample index); tensors give one key per element.
        device: Where keys made of plain integers live; tensor words decide otherwise.
    """
    tensors = [word for word in words if isinstance(word, Tensor)]
    device = tensors[0].device if tensors else torch.device(device)
    length = tensors[0].shape[0] if tensors else 1
    parts: list[int | Tensor] = [seed, seed >> 32, zlib.crc32(purpose.encode())]
    for word in words:
        parts += [word, word >> 32]
    starts = [start & 0xFFFFFFFF for start in _LANES]
    shared = list(takewhile(lambda part: not isinstance(part, Tensor), parts))
    for word in cast("list[int]", shared):  # what all samples share is hashed once, and not on the device
        starts = [_mix_integer(((start ^ (word & 0xFFFFFFFF)) + _GOLDEN) & 0xFFFFFFFF) for start in starts]
    rest = parts[len(shared) :]
    return _key_on_host(starts, rest, length) if device.type == "cpu" else _key_there(starts, rest, length, device)


def _key_on_host(starts: list[int], parts: list[int | Tensor], length: int) -> Key:
    lanes = np.repeat(np.array(starts, np.uint32)[:, None], length, axis=1)
    for part in parts:
        lanes = lanes ^ (_words(part) if isinstance(part, Tensor) else np.uint32(part & 0xFFFFFFFF))
        lanes += np.uint32(_GOLDEN & 0xFFFFFFFF)
        _mix_words(lanes)
    return Key(_tensor(lanes[0]), _tensor(lanes[1]))


def _key_there(starts: list[int], parts: list[int | Tensor], length: int, device: torch.device) -> Key:
    lanes = torch.stack([torch.full((length,), _signed(start), dtype=torch.int32, device=device) for start in starts])
    for part in parts:
        # Of a tensor the low 32 bits: integers are cut off, not clamped.
        value = part.to(torch.int32) if isinstance(part, Tensor) else _signed(part)
        lanes = _mix((lanes ^ value) + _GOLDEN)
    return Key(lanes[0], lanes[1])


def bits(key: Key, n: int) -> Int[Tensor, "B n"]:
    """Uniform 32-bit integers (signed, int32): ``n`` per key."""
    short = key.low.device.type == "cpu" and len(key.low) * n <= _SHORT
    return _bits_on_host(key, n) if short else _bits_there(key, n)


def _bits_on_host(key: Key, n: int) -> Int[Tensor, "B n"]:
    counter = np.arange(n, dtype=np.uint32) * np.uint32(_GOLDEN & 0xFFFFFFFF)
    drawn = _mix_words(counter[None, :] + _words(key.low)[:, None])
    drawn ^= _words(key.high)[:, None]
    return _tensor(_mix_words(drawn))


def _bits_there(key: Key, n: int) -> Int[Tensor, "B n"]:
    counter = torch.arange(n, dtype=torch.int32, device=key.low.device) * _GOLDEN
    return _mix(_mix(counter[None, :] + key.low[:, None]) ^ key.high[:, None])


def uniform(key: Key, n: int) -> Float[Tensor, "B n"]:
    """Uniform float32 numbers in [0, 1), multiples of 2**-24: ``n`` per key."""
    return ((bits(key, n) >> 8) & 0xFFFFFF).to(torch.float32) * 2.0**-24


def normal(key: Key, n: int) -> Float[Tensor, "B n"]:
    """Standard normal float32 numbers (Box-Muller): ``n`` per key."""
    u = uniform(key, 2 * n)
    radius = torch.sqrt(-2.0 * torch.log1p(-u[:, :n]))  # 1 - u is in (0, 1]: never the logarithm of zero
    return radius * torch.cos(2.0 * torch.pi * u[:, n:])


def permutation(seed: int, purpose: str, *words: int, n: int) -> Int[Tensor, " n"]:
    """A permutation of 0..n-1 (int64), by sorting 64 hashed bits per element."""
    key = make_key(seed, purpose, *words)
    high, low = (bits(k, n)[0].to(torch.int64) for k in (key, Key(key.high, key.low)))
    return torch.argsort((high << 32) | (low & 0xFFFFFFFF), stable=True)
