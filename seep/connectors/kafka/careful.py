"""Messages decoded while one of them is suspected of killing whoever decodes it.

Noting each message where the note outlives the process takes as long as the store takes to sync: a topic with more
messages a second than that would stand still for as long as somebody looks. So pieces of many messages are noted, by
their offsets, and only the piece at which the process before us died is gone through message by message.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from seep.connectors.kafka.decoders import Decoded, Decoder
from seep.model.care import DIED_IN_MESSAGE, Care, Spot

PIECE_MESSAGES = 1_024
"""Pieces begin at multiples of this, wherever a read begins."""


def decode_carefully(
    decoder: Decoder, care: Care, who: str, place: str, messages: Sequence[Any], values: Sequence[bytes | None]
) -> Decoded:
    """`place`: of the partition, in a Spot. Raises Condemned at the message that did it."""
    records, of_row, refused = [decoder.decode([]).record], list[int](), list[tuple[int, str]]()

    def decode(numbers: list[int]) -> None:
        found = decoder.decode([values[number] for number in numbers])
        records.append(found.record)
        of_row.extend(numbers[at] for at in found.messages)
        refused.extend((numbers[at], why) for at, why in found.refused)

    for piece, group in groupby(range(len(messages)), lambda number: messages[number].offset() // PIECE_MESSAGES):
        left = []
        for number in group:
            if _spot(place, messages[number].offset()) in care.skips:
                refused.append((number, DIED_IN_MESSAGE))
            else:
                left.append(number)
        if _is_suspect(care.suspect, place, piece):
            for number in left:
                offset = messages[number].offset()
                care.begin(_spot(place, offset), f"{who}: the message at offset {offset}", fails=False)
                decode([number])
        elif left:
            care.begin(Spot(f"{place}:messages", 0, piece), f"{who}: messages from {piece * PIECE_MESSAGES} on", False)
            decode(left)
    care.end()
    return Decoded(pa.concat_batches(records), of_row, sorted(refused))


def _spot(place: str, offset: int) -> Spot:
    return Spot(f"{place}:message", 0, offset)


def _is_suspect(suspect: Spot | None, place: str, piece: int) -> bool:
    """Has the one before us died in this piece, or at a message of it?"""
    if suspect is None:
        return False
    if suspect.step == f"{place}:messages":
        return suspect.position == piece
    return suspect.step == f"{place}:message" and suspect.position // PIECE_MESSAGES == piece
