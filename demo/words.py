"""A smaller flow, for the test on Spark: lines of a poem, the count of their words, and one that knows nothing of seep.

Line `i` is a function of `i` alone, so the independent count can be made after the run, from the same numbers. Besides
the words their line numbers are summed: a word lost at one place and doubled at another would leave the count as it
should be, but not the sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import seep

POEM = """
All the world's a stage
And all the men and women merely players
They have their exits and their entrances
And one man in his time plays many parts
His acts being seven ages At first the infant
Mewling and puking in the nurse's arms
And then the whining school-boy with his satchel
And shining morning face creeping like snail
Unwillingly to school And then the lover
Sighing like furnace with a woeful ballad
Made to his mistress' eyebrow Then a soldier
Full of strange oaths and bearded like the pard
Jealous in honour sudden and quick in quarrel
Seeking the bubble reputation
Even in the cannon's mouth And then the justice
In fair round belly with good capon lined
With eyes severe and beard of formal cut
Full of wise saws and modern instances
And so he plays his part The sixth age shifts
Into the lean and slipper'd pantaloon
With spectacles on nose and pouch on side
His youthful hose well saved a world too wide
For his shrunk shank and his big manly voice
Turning again toward childish treble pipes
And whistles in his sound Last scene of all
That ends this strange eventful history
Is second childishness and mere oblivion
Sans teeth sans eyes sans taste sans everything
"""
LINES = POEM.strip().splitlines()

READ, COUNT, OUT = "lines", "count", "counts"


class Line(NamedTuple):
    number: int
    text: str


class Word(NamedTuple):
    word: str
    line: int


def line(number: int) -> Line:
    return Line(number, LINES[number % len(LINES)])


def words(row: Any) -> Iterator[Word]:
    for word in row.text.lower().split():
        yield Word(word, row.number)


def build(lines: int, lines_per_second: float) -> seep.Flow:
    """So many lines at a steady pace, and the running count of their words."""
    flow = seep.Flow("word-count", epoch="50ms", checkpoint="1s")
    read = flow.source(READ, seep.GeneratorSource(line, rate=lines_per_second, rows=lines))
    counted = read.flat_map(words, schema=Word).key_by("word").aggregate(n=seep.count(), lines=seep.total("line"))
    counted.named(COUNT).collect(OUT)
    return flow


class Verdict(NamedTuple):
    expected: int
    lost: int
    duplicated: int
    misplaced: int
    """Words whose count is right and whose line numbers are not."""
    most: list[tuple[str, int]]

    @property
    def exact(self) -> bool:
        return not (self.lost or self.duplicated or self.misplaced)


def judge(lines: int, rows: list[dict[str, Any]]) -> Verdict:
    """Compare what the flow has counted with a plain count of the same lines.

    >>> judge(1, [{"word": w, "n": 1, "lines": 0} for w in LINES[0].lower().split()]).exact
    True
    >>> judge(1, [{"word": "all", "n": 3, "lines": 0}])[:4]
    (5, 4, 2, 0)
    """
    expected: Counter[str] = Counter()
    places: Counter[str] = Counter()
    for number in range(lines):
        for word in LINES[number % len(LINES)].lower().split():
            expected[word] += 1
            places[word] += number
    counted = Counter({row["word"]: row["n"] for row in rows})
    sums = {row["word"]: row["lines"] for row in rows}
    return Verdict(
        expected.total(),
        (expected - counted).total(),
        (counted - expected).total(),
        sum(counted[w] == n and sums[w] != places[w] for w, n in expected.items()),
        counted.most_common(3),
    )
