"""When a topic counts as deleted: not before brokers have said so again and again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seep.connectors.kafka.discovery import GONE_ANSWERS, GONE_SECONDS, Missed, Place

HERE, THERE = Place("here", 0), Place("there", 3)


def test_it_takes_several_answers_over_some_seconds() -> None:
    quick, slow = Missed(), Missed()
    for n in range(10 * GONE_ANSWERS):
        assert not quick.answered([HERE], n * 0.01)  # many answers, all of one moment
    for n in range(GONE_ANSWERS - 1):
        assert not slow.answered([HERE], n * GONE_SECONDS)  # a long time, few answers
    assert quick.answered([HERE, THERE], GONE_SECONDS) == {HERE}


@given(st.lists(st.sampled_from(["unknown", "known", "silence"]), max_size=40))
def test_whatever_comes_in_between_begins_anew(answers: list[str]) -> None:
    missed, in_a_row = Missed(), 0
    for second, answer in enumerate(answers):
        gone: frozenset[Place] = frozenset()
        if answer == "silence":
            missed.unanswered()
        else:
            gone = missed.answered([HERE] if answer == "unknown" else [], float(second))
        in_a_row = in_a_row + 1 if answer == "unknown" else 0
        assert bool(missed) == bool(in_a_row)
        assert bool(gone) == (in_a_row >= GONE_ANSWERS and in_a_row - 1 >= GONE_SECONDS)
