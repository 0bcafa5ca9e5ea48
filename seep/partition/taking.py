"""How long epochs took inside an operator, by how many rows they had.

Kept as sums, so that the difference of two looks says everything of the time between them, also of several partitions
taken together: a line through the points (rows, seconds) tells what an epoch costs by itself, and what a row does.
"""

from __future__ import annotations


class Taking:
    def __init__(self) -> None:
        self.epochs = 0
        """With rows."""
        self.seconds = 0.0
        self.rows_squared = 0
        self.row_seconds = 0.0
        """Of each epoch its rows times its seconds."""
        self.seconds_squared = 0.0

    def add(self, rows: int, seconds: float) -> None:
        self.epochs += 1
        self.seconds += seconds
        self.rows_squared += rows * rows
        self.row_seconds += rows * seconds
        self.seconds_squared += seconds * seconds
