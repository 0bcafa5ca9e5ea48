"""Compiled loops over whole rows in canonical form."""

from __future__ import annotations

from typing import Any

import numpy as np

from operators.kernels.lookup import differing_words
from seep.model.hashing import Positions, Words, compiled


@compiled
def differing_rows(left: Positions, left_words: Words, right: Positions, right_words: Words) -> Any:
    """For each row: are its words on the left other than those on the right?"""
    rows = left.shape[0] - 1
    result = np.zeros(rows, np.bool_)
    for row in range(rows):
        length = left[row + 1] - left[row]
        same = length == right[row + 1] - right[row]
        result[row] = not same or differing_words(left_words, left[row], right_words, right[row], length) != 0
    return result
