"""JSON decode alone, on one core: messages as a source gets them, one in a thousand broken, each a dead letter."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.sales import Sales
from seep.connectors.kafka.decoders import decoder_of

ROWS = 1_000_000
TOGETHER = 20_000
"""Messages of a read, about as many as an epoch holds."""
BROKEN_EVERY = 1_000
REPEATS = 3
BREAKS = (
    lambda row: row[:-1],
    lambda row: row.replace(b'"amount":', b'"amount":"').replace(b"}", b'"}'),
    lambda row: row.replace(b'"at":', b'"at":1.5e0,"at2":'),
    lambda row: row.replace(b'"store"', b'"shop"'),
    lambda row: b"null",
    lambda row: row.replace(b"store-", b"store-\xff"),
)
"""A part of it is missing; text for a number; a fraction for an int; a field is missing; no object; no UTF-8."""


def figures(seed: int, rows: int = ROWS) -> tuple[dict[str, Any], bool]:
    known = Sales(rows, seed).columns()
    stores, times, amounts = (known[name].to_list() for name in ("number", "at", "amount"))
    values: list[bytes | None] = []
    broken: list[int] = []
    right: list[tuple[str, int, int]] = []
    for number, (store, at, amount) in enumerate(zip(stores, times, amounts, strict=True)):
        value = b'{"store":"store-%03d","at":%d,"amount":%d}' % (store, at, amount)
        if number % BROKEN_EVERY == BROKEN_EVERY // 2:
            value = BREAKS[len(broken) % len(BREAKS)](value)
            broken.append(number)
        else:
            right.append((f"store-{store:03d}", at, amount))
        values.append(value)
    decoder = decoder_of("bench", "json", {"store": str, "at": int, "amount": int})
    pieces = [values[first : first + TOGETHER] for first in range(0, rows, TOGETHER)]
    best = float("inf")
    for _ in range(REPEATS):
        began = time.process_time()
        decoded = [decoder.decode(piece) for piece in pieces]
        best = min(best, time.process_time() - began)
    found = [tuple(row.values()) for one in decoded for row in one.record.to_pylist()]
    refused = [place * TOGETHER + number for place, one in enumerate(decoded) for number, _ in one.refused]
    reasoned = all(why for one in decoded for _, why in one.refused)
    verified = found == right and refused == broken and reasoned
    return {"decode_rows_per_second": round(rows / best), "decode_dead_letters": len(refused)}, verified
