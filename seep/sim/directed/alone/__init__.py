"""A policy, a buffer, one partition alone, with its store and neighbours in the hands of the schedule.

What they must come to is reckoned by hand. A world survives much that is wrong in them; a user would see it all the
same. Each takes milliseconds.
"""

from seep.sim.directed.alone import (
    accused,
    coded,
    committing,
    copied,
    cutting,
    decided,
    fetched,
    housed,
    kept,
    measured,
    owned,
    ranges,
    reached,
    resuming,
    retrying,
    ruling,
    sending,
    staffed,
    starting,
    stepped,
    taking,
    wishes,
    working,
    writing,
)

FILES = (
    accused,
    coded,
    committing,
    copied,
    cutting,
    decided,
    fetched,
    housed,
    kept,
    measured,
    owned,
    ranges,
    reached,
    resuming,
    retrying,
    ruling,
    sending,
    staffed,
    starting,
    stepped,
    taking,
    wishes,
    working,
    writing,
)
