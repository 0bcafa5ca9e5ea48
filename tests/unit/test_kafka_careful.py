"""Looking for a message that kills costs few notes, finds the very message, and changes no row."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from seep.connectors.kafka.careful import PIECE_MESSAGES, decode_carefully
from seep.connectors.kafka.decoders import EachDecoder
from seep.model.care import DIED_IN_MESSAGE, Care, Spot

FIRST, COUNT = 700, 4_000
BAD = 2_345
DECODER = EachDecoder(pa.schema([("n", pa.int64())]), lambda value: {"n": int(value)})


class Message(NamedTuple):
    number: int

    def offset(self) -> int:
        return self.number


MESSAGES = [Message(n) for n in range(FIRST, FIRST + COUNT)]
VALUES = [b"none" if m.number % 1_000 == 1 else str(m.number).encode() for m in MESSAGES]


class Noted:
    def __init__(self) -> None:
        self.spots: list[Spot | None] = []

    def __call__(self, spot: Spot | None) -> bool:
        self.spots.append(spot)
        return False


def decoded(care: Care) -> tuple[list[int], list[int], list[tuple[int, str]]]:
    found = decode_carefully(DECODER, care, "rows", "t:0", MESSAGES, VALUES)
    return found.record.column("n").to_pylist(), found.messages, found.refused


def test_the_rows_are_those_of_any_other_run() -> None:
    plain = DECODER.decode(list(VALUES))
    wanted = (plain.record.column("n").to_pylist(), plain.messages, plain.refused)
    suspects = (None, Spot("t:0:messages", 0, 1), Spot("t:0:message", 0, BAD), Spot("t:1:message", 0, BAD))
    assert all(decoded(Care(note=Noted(), suspect=suspect)) == wanted for suspect in suspects)


def test_pieces_are_noted_and_only_the_suspect_one_message_by_message() -> None:
    noted = Noted()
    decoded(Care(note=noted))
    pieces = range(FIRST // PIECE_MESSAGES, (FIRST + COUNT - 1) // PIECE_MESSAGES + 1)
    assert noted.spots == [*(Spot("t:0:messages", 0, piece) for piece in pieces), None]
    for suspect in (Spot("t:0:messages", 0, BAD // PIECE_MESSAGES), Spot("t:0:message", 0, BAD)):
        noted = Noted()
        decoded(Care(note=noted, suspect=suspect))
        singles = [spot.position for spot in noted.spots if spot is not None and spot.step == "t:0:message"]
        begin = BAD // PIECE_MESSAGES * PIECE_MESSAGES
        assert singles == list(range(begin, begin + PIECE_MESSAGES))
        assert len(noted.spots) - len(singles) == len(pieces)


def test_the_one_that_was_found_is_left_out() -> None:
    for note in (None, Noted()):
        rows, of_row, refused = decoded(Care(frozenset({Spot("t:0:message", 0, BAD)}), note))
        assert BAD not in rows
        assert len(of_row) == len(rows) == COUNT - len(refused)
        assert (BAD - FIRST, DIED_IN_MESSAGE) in refused
        assert refused == sorted(refused)
