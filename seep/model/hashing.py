"""The compiled loops under the key space: rows of Arrow columns to 64-bit words, words to xxh64.

Arrow's buffers are read by address, not as numpy views: a view of an immutable buffer is another type to the
compiler (each loop would be compiled twice), and unpacking it costs more than hashing a short batch.
The caller keeps the arrays alive during a call.

A row becomes *words* (see `seep.model.keyspace` for their meaning); they are hashed, compared and saved as they are.
Whole words instead of bytes leave xxh64 without its slow tail, and make comparing two keys a few instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic
from numba.np.numpy_support import carray

Words = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]

_Function = TypeVar("_Function", bound=Callable[..., Any])

PRIME_1 = np.uint64(0x9E3779B185EBCA87)
PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
PRIME_3 = np.uint64(0x165667B19E3779F9)
PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
PRIME_5 = np.uint64(0x27D4EB2F165667C5)
_WORD_BYTES = np.uint64(8)


def compiled(function: _Function) -> _Function:
    """Compile a loop to machine code, kept on disk so that a fresh worker does not compile; it drops the GIL."""
    return cast(_Function, numba.njit(cache=True, nogil=True)(function))


def _load(kind: Any, result: Any) -> Any:
    def typed(_context: Any, address: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            # Alignment 1: strings begin anywhere.
            return builder.load(builder.inttoptr(arguments[0], kind.as_pointer()), align=1, typ=kind)

        return result(types.int64), generate

    return intrinsic(typed)


load_word = _load(ir.IntType(64), types.uint64)
load_signed = _load(ir.IntType(64), types.int64)
load_float = _load(ir.DoubleType(), types.float64)
load_offset = _load(ir.IntType(32), types.int32)
load_half = _load(ir.IntType(32), types.uint32)
load_byte = _load(ir.IntType(8), types.uint8)


def _pointer(_context: Any, address: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


_pointer_to: Any = intrinsic(_pointer)


def _store(_context: Any, address: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        builder.store(arguments[1], builder.inttoptr(arguments[0], ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), generate


store_word: Any = intrinsic(_store)
"""Write eight bytes at an address, aligned or not."""


@compiled
def is_valid(validity: int, bit: int) -> bool:
    """Is this bit of a validity bitmap set? Address 0 stands for "no nulls"."""
    return validity == 0 or (load_byte(validity + (bit >> 3)) >> (bit & 7)) & 1 != 0


@compiled
def rotate(value: np.uint64, bits: np.uint64) -> np.uint64:
    return (value << bits) | (value >> (np.uint64(64) - bits))


@compiled
def _round(accumulator: np.uint64, word: np.uint64) -> np.uint64:
    return rotate(accumulator + word * PRIME_2, np.uint64(31)) * PRIME_1


@compiled
def _merge(digest: np.uint64, accumulator: np.uint64) -> np.uint64:
    return (digest ^ _round(np.uint64(0), accumulator)) * PRIME_1 + PRIME_4


@compiled
def avalanche(digest: np.uint64) -> np.uint64:
    """xxh64's last step: every bit of the input touches every bit of the result."""
    digest = (digest ^ (digest >> np.uint64(33))) * PRIME_2
    digest = (digest ^ (digest >> np.uint64(29))) * PRIME_3
    return digest ^ (digest >> np.uint64(32))


@compiled
def xxh64(words: Words, start: int, stop: int) -> np.uint64:
    """xxh64 with seed 0 over the little-endian bytes of ``words[start:stop]``."""
    at = start
    if stop - start >= 4:
        first = PRIME_1 + PRIME_2
        second = PRIME_2
        third = np.uint64(0)
        fourth = np.uint64(0) - PRIME_1
        while stop - at >= 4:
            first = _round(first, words[at])
            second = _round(second, words[at + 1])
            third = _round(third, words[at + 2])
            fourth = _round(fourth, words[at + 3])
            at += 4
        digest = rotate(first, np.uint64(1)) + rotate(second, np.uint64(7))
        digest += rotate(third, np.uint64(12)) + rotate(fourth, np.uint64(18))
        digest = _merge(_merge(_merge(_merge(digest, first), second), third), fourth)
    else:
        digest = PRIME_5
    digest += np.uint64(stop - start) * _WORD_BYTES
    while at < stop:
        digest = rotate(digest ^ _round(np.uint64(0), words[at]), np.uint64(27)) * PRIME_1 + PRIME_4
        at += 1
    return avalanche(digest)


@compiled
def hash_rows(offsets: Positions, words: Words) -> Words:
    count = offsets.shape[0] - 1
    result = np.empty(count, np.uint64)
    for row in range(count):
        result[row] = xxh64(words, offsets[row], offsets[row + 1])
    return result


@compiled
def tail_word(start: Any, length: Any) -> Any:
    """The bytes of a string after its last whole word (1 to 7 of them) as a word, zeros above.

    Whole loads that overlap, shifted into place: byte by byte costs more than all the rest of hashing a short key.
    Nothing outside of the string is read.
    """
    if length >= 8:
        return load_word(start + length - 8) >> np.uint64(64 - 8 * (length & 7))
    if length >= 4:
        first = np.uint64(load_half(start))
        last = np.uint64(load_half(start + length - 4))
        return first | (last << np.uint64(8 * (length - 4)))
    word = np.uint64(load_byte(start))
    for at in range(1, length):
        word |= np.uint64(load_byte(start + at)) << np.uint64(8 * at)
    return word


@compiled
def count_fixed(offsets: Positions, width: int, validity: int, bit: int) -> None:
    """Add to ``offsets[row + 1]`` the words that row takes in a column of ``width`` words."""
    for row in range(offsets.shape[0] - 1):
        offsets[row + 1] += 1 + width if is_valid(validity, bit + row) else 1


@compiled
def count_variable(offsets: Positions, starts: int, validity: int, bit: int) -> None:
    for row in range(offsets.shape[0] - 1):
        if is_valid(validity, bit + row):
            length = load_offset(starts + 4 * row + 4) - load_offset(starts + 4 * row)
            offsets[row + 1] += 1 + ((length + 7) >> 3)
        else:
            offsets[row + 1] += 1


@compiled
def put_fixed(
    words: Words, cursor: Positions, values: int, width: int, header: np.uint64, validity: int, bit: int
) -> None:
    for row in range(cursor.shape[0]):
        at = cursor[row]
        if is_valid(validity, bit + row):
            words[at] = header
            for part in range(width):
                words[at + 1 + part] = load_word(values + 8 * (row * width + part))
            cursor[row] = at + 1 + width
        else:
            words[at] = np.uint64(0)
            cursor[row] = at + 1


@compiled
def put_variable(
    words: Words, cursor: Positions, starts: int, data: int, tag: np.uint64, validity: int, bit: int
) -> None:
    for row in range(cursor.shape[0]):
        at = cursor[row]
        if is_valid(validity, bit + row):
            start = np.int64(load_offset(starts + 4 * row))
            length = np.int64(load_offset(starts + 4 * row + 4)) - start
            words[at] = tag | np.uint64(length)
            at += 1
            address = data + start
            for word in range(length >> 3):
                words[at] = load_word(address + 8 * word)
                at += 1
            if length & 7:
                words[at] = tail_word(address, length)
                at += 1
            cursor[row] = at
        else:
            words[at] = np.uint64(0)
            cursor[row] = at + 1


@compiled
def fold_fixed(digests: Words, values: int, width: int, validity: int, bit: int) -> None:
    """Fold a column into one running digest for each row (for `ArrowBatch.digest`, where no words are kept)."""
    if width == 1 and validity == 0 and values % 8 == 0:
        # As an array, since of an array the processor takes several words at once.
        words = carray(_pointer_to(values), digests.shape, np.uint64)
        for row in range(digests.shape[0]):
            digests[row] = _merge(digests[row], words[row])
        return
    for row in range(digests.shape[0]):
        digest = digests[row]
        if is_valid(validity, bit + row):
            for part in range(width):
                digest = _merge(digest, load_word(values + 8 * (row * width + part)))
        else:
            digest = rotate(digest, np.uint64(23)) * PRIME_3
        digests[row] = digest


@compiled
def fold_variable(digests: Words, starts: int, data: int, validity: int, bit: int) -> None:
    for row in range(digests.shape[0]):
        digest = digests[row]
        if is_valid(validity, bit + row):
            start = np.int64(load_offset(starts + 4 * row))
            length = np.int64(load_offset(starts + 4 * row + 4)) - start
            digest = rotate(digest ^ np.uint64(length), np.uint64(11)) * PRIME_5
            address = data + start
            for word in range(length >> 3):
                digest = _merge(digest, load_word(address + 8 * word))
            if length & 7:
                digest = _merge(digest, tail_word(address, length))
        else:
            digest = rotate(digest, np.uint64(23)) * PRIME_3
        digests[row] = digest


@compiled
def sum_digests(digests: Words) -> np.uint64:
    result = np.uint64(0)
    for row in range(digests.shape[0]):
        result += avalanche(digests[row])
    return result
