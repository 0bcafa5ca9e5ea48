"""Durations: what is read, and what is refused in one line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from seep.errors import Misuse
from seep.model.duration import microseconds, positive_microseconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5us", 5), ("50ms", 50_000), ("10s", 10**7), ("1m", 6 * 10**7), ("2h", 7_200 * 10**6), ("1d", 86_400 * 10**6)],
)
def test_every_unit(text: str, expected: int) -> None:
    assert microseconds(text) == expected


def test_fractions_signs_and_timedeltas() -> None:
    assert microseconds("1.5ms") == 1_500
    assert microseconds("-5s") == -5_000_000
    assert microseconds(timedelta(seconds=1, microseconds=2)) == 1_000_002


@pytest.mark.parametrize("wrong", [10, 1.5, None, True, "10", "s", "10 parsecs", "", "0.5us", "1e3s", "1s 2ms"])
def test_what_is_not_a_duration_is_refused_in_one_line(wrong: Any) -> None:
    with pytest.raises(Misuse) as refusal:
        microseconds(wrong)
    assert repr(wrong) in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("wrong", ["0s", "-1s", timedelta(0)])
def test_some_durations_must_be_longer_than_zero(wrong: str | timedelta) -> None:
    with pytest.raises(Misuse, match="longer than zero"):
        positive_microseconds(wrong)
