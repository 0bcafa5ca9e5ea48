"""Pieces of an operator are spread: over workers first, then over hosts and executors; copies are kept apart."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from seep.control import planner
from seep.control.placement import place, spread
from seep.model.ids import EVERYTHING, FOREVER, Generation, PartitionId, Place
from seep.model.settings import Settings
from seep.partition.contract import Edge, Graph, Node
from seep.partition.copies import Protection
from seep.partition.desk import Desk
from seep.protocol.journal import LIVE, Entry, Journal
from seep.sim.stage import chain

PLACES = st.dictionaries(
    st.sampled_from([f"w{n}" for n in range(9)]),
    st.builds(Place, st.sampled_from(["h1", "h2", "h3"]), st.sampled_from(["x1", "x2"])),
    min_size=1,
)
OWNER = PartitionId("a", 0)
GRAPH = Graph(
    {name: Node(name, kind, lambda: None) for name, kind in {"s": "source", "a": "operator"}.items()},
    (Edge("s>a", "s", "a", 0),),
)


def placed(parts: int, places: dict[str, Place]) -> Journal:
    journal = planner.first_journal(chain(starts={"a": parts}))
    for partition in sorted(journal.entries):
        journal = planner.restart(journal, partition, place(journal, partition, sorted(places), places))
    return journal


@given(PLACES, st.integers(1, 12))
def test_no_worker_has_two_more_of_an_operator_than_another(places: dict[str, Place], parts: int) -> None:
    of_operator = Counter(entry.worker for entry in placed(parts, places).of("a"))
    counts = [of_operator[worker] for worker in places]
    assert max(counts) - min(counts) <= 1


@given(PLACES)
def test_an_operator_is_on_as_many_hosts_as_it_has_pieces_for(places: dict[str, Place]) -> None:
    hosts = {at.host for at in places.values()}
    journal = planner.first_journal(chain(starts={"a": len(hosts)}))
    for partition in [p for p in sorted(journal.entries) if p.operator == "a"]:
        journal = planner.restart(journal, partition, place(journal, partition, sorted(places), places))
    assert {places[entry.worker].host for entry in journal.of("a")} == hosts


@given(PLACES, st.integers(1, 9))
def test_the_first_workers_are_of_as_many_hosts_as_there_are(places: dict[str, Place], count: int) -> None:
    chosen = spread(places, count, places)
    assert len(chosen) == min(count, len(places))
    assert len({places[worker].host for worker in chosen}) == min(count, len({at.host for at in places.values()}))


def test_without_places_it_goes_by_name() -> None:
    assert spread(["w3", "w1", "w2"], 2, {}) == ["w1", "w2"]
    journal = planner.first_journal(chain(starts={"a": 2}))
    assert place(journal, sorted(journal.entries)[0], ["w2", "w1"], {}) == "w1"


@given(PLACES, st.sampled_from(["h1", "h2"]), st.sampled_from(["x1", "x2"]))
def test_a_copy_is_as_far_from_its_partition_as_there_is_a_choice(
    places: dict[str, Place], host: str, executor: str
) -> None:
    generation = Generation(1, 1)

    def entry(partition: PartitionId, worker: str) -> Entry:
        return Entry(partition, EVERYTHING, 1, FOREVER, LIVE, generation, worker)

    desk = Desk("owner", Settings())
    desk.place, desk.places = Place(host, executor), {**places, "owner": Place(host, executor)}
    senders = [*places, "owner"]
    entries = [entry(PartitionId("s", n), worker) for n, worker in enumerate(senders)]
    desk.journal = Journal(1, 1, {one.partition: one for one in (*entries, entry(OWNER, "owner"))})
    protection = Protection(desk, GRAPH, entry(OWNER, "owner"))
    protection._choose()
    assert protection.holder != "owner"
    best = max(desk.place.apart(at) for at in places.values())
    assert desk.place.apart(places[protection.holder]) == best
