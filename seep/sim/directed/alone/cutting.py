"""One source partition by itself: when it cuts, what it writes down and announces, and when it waits."""

from __future__ import annotations

from dataclasses import replace as with_fields

from seep.model.ids import BEGINNING, EVERYTHING, FOREVER
from seep.protocol.effects import StoreReply
from seep.protocol.journal import SEALED, Replace
from seep.sim.directed.alone.sourced import MINE, S3, Bench
from seep.sim.directed.registry import demand, scenario


@scenario
def source_cuts_at_its_interval_and_announces_what_is_logged() -> None:
    bench = Bench()
    bench.subscribe()
    bench.announced()
    demand((bench.source.status().epoch, bench.source.status().own_checkpoints) == (4, 0), f"{bench.source.status()}")
    bench.rows.waiting = {0: [(3, 70, False)], 1: [(2, 90, False), None]}
    asked = bench.tick(0.0, 1_000)
    assert asked is not None
    demand((asked.epoch, asked.partition, asked.generation) == (5, S3, MINE.generation), f"{asked}")
    demand(bench.rows.asked == [(0, None, None, 50), (1, None, None, 97)], f"{bench.rows.asked}")
    record = asked.record
    first = {
        0: [None, 3, 70, False, 1_000, {"read": 3, "errors": 1}],
        1: [None, 2, 90, False, 1_000, {"read": 2, "errors": 1}],
    }
    demand(record["splits"] == {str(split): known for split, known in first.items()}, f"{record['splits']}")
    told = {name: record[name] for name in ("after", "base", "now", "watermark", "ended", "idle", "rows")}
    wanted = {"after": 4, "base": 4, "now": 1_000, "watermark": 65, "ended": False, "idle": False, "rows": 5}
    demand(told == wanted and record["edges"]["s>a"][1:] == (5, 160), f"{told}")
    demand(bench.rows.epoch == 5 and bench.tick(10.0) is None and not bench.announced(), "before it is in the log")
    bench.desk.answer(StoreReply(asked.token))
    (said,) = bench.announced()
    demand((said.epoch, said.now_ms, said.watermark, said.ended, said.idle) == (5, 1_000, 65, False, False), f"{said}")
    status = bench.source.status()
    demand((status.epoch, status.durable_epoch, status.own_checkpoints, status.published) == (5, 5, 2, 5), f"{status}")
    demand(status.statistics == {"rows_out": 5, "buffer_bytes": 160, "errors": 2, "skipped": 0}, f"{status.statistics}")
    demand((status.watermark, status.idle, status.accepted, status.drained) == (65, False, True, False), f"{status}")
    demand(bench.source.outputs.sent == {"s>a": 5}, f"{bench.source.outputs.sent}")
    demand(bench.tick(9.9, 1_010) is None, "too early")
    second = bench.cut(10.0, 1_020)
    demand((second["epoch"], second["after"], second["base"], second["rows"]) == (6, 5, 5, 0), f"{second}")
    demand(second["splits"]["0"] == [3, 3, 70, False, 1_000, first[0][5]], f"{second['splits']}")
    demand(bench.source.status().published == 5, "an empty epoch is no progress")
    backwards = bench.cut(20.0, 900)
    demand(backwards["now"] == 1_020, "its clock goes back")
    demand(bench.tick(29.9) is None and bench.tick(47.0) is not None, "after a pause")


@scenario
def source_goes_on_at_once_where_it_has_more() -> None:
    bench = Bench(epoch_rows=4)
    bench.rows.waiting = {0: [(2, 1, False)] * 9, 1: [(2, 1, False)] * 9}
    bench.cut(0.0)
    demand(bench.rows.asked == [(0, None, None, 2), (1, None, None, 2)], f"{bench.rows.asked}")
    bench.subscribe()
    bench.credit(5)
    demand(bench.tick(0.5) is not None, "it waits though there is more")
    some = Bench(epoch_rows=4)
    some.rows.waiting = {0: [(1, 1, False)] * 9, 1: [(1, 1, False)] * 9}
    some.cut(0.0)
    demand(some.tick(9.0) is None and some.tick(10.0) is not None, "it has no more")
    done_with = Bench(epoch_rows=4)
    done_with.rows.waiting = {0: [(2, 1, True)], 1: [None] * 9}
    done_with.cut(0.0)
    demand(done_with.tick(9.0) is None and done_with.tick(10.0) is not None, "what has ended has no more")
    done_with.rows.asked.clear()
    # Few at first: what it has more waits for its time.
    first = Bench(first_epoch_rows=4)
    first.rows.waiting = {0: [(2, 1, False)] * 9, 1: [(2, 1, False)] * 9}
    first.cut(0.0)
    demand(first.tick(9.0) is None, "faster than its pace")


@scenario
def source_hears_of_higher_epochs_and_of_limits() -> None:
    bench = Bench()
    bench.subscribe()
    bench.cut(0.0)
    bench.credit(5, highest=9)
    jumped = bench.cut(1.0)
    demand((jumped["epoch"], jumped["after"]) == (9, 5), f"{jumped}")
    bench.credit(9, highest=9)
    demand(bench.tick(2.0) is None, "it has been there")
    for limit, cut in ((161, True), (160, False)):
        full = Bench(buffer_bytes=limit)
        full.rows.waiting[0] = [(5, 1, False)]
        full.cut(0.0)
        demand((full.tick(10.0) is not None) == cut, f"with {limit}")
        demand(bool(full.desk.counts.get("source_held_by_buffer")) != cut, f"{full.desk.counts}")
    slow = Bench(credit_epochs=1)
    slow.subscribe()
    slow.cut(0.0)
    slow.cut(10.0)
    demand(slow.tick(20.0) is None, "its receiver is behind")
    slow.credit(6)
    demand(slow.tick(30.0) is not None, "its receiver is there")


@scenario
def source_ends_with_its_splits() -> None:
    bench = Bench()
    bench.subscribe()
    bench.announced()
    bench.rows.waiting = {0: [(1, 70, True)], 1: [(1, 90, False), (1, 95, True)]}
    record = bench.cut(0.0)
    demand((record["ended"], record["watermark"]) == (False, 85), f"{record}")
    bench.rows.asked.clear()
    last = bench.cut(10.0)
    demand((last["ended"], last["idle"], last["watermark"]) == (True, False, FOREVER), f"{last}")
    demand([split for split, *_ in bench.rows.asked] == [1], "what has ended is read")
    said = bench.announced()[-1]
    demand((said.ended, said.watermark) == (True, 90), f"{said}")
    status = bench.source.status()
    demand(status.ended and bench.desk.changed and not status.drained and not status.idle, f"{status}")
    demand(bench.tick(20.0) is None and bench.tick(90.0) is None, "it goes on")
    bench.desk.changed = False
    bench.trim(6)
    demand(bench.source.status().drained and bench.desk.changed, "nobody is told")
    # Asked to end: what it has read is all.
    drained = Bench()
    drained.subscribe()
    drained.cut(0.0)
    drained.credit(5, highest=12)
    drained.journal(stopping="drain")
    last = drained.cut(10.0)
    demand((last["epoch"], last["ended"], last["watermark"], last["rows"]) == (12, True, FOREVER, 0), f"{last}")
    demand(all(known[3] for known in last["splits"].values()), f"{last}")
    plain = Bench()
    plain.cut(0.0)
    plain.journal(stopping="drain")
    demand(plain.cut(10.0)["epoch"] == 6, "its last epoch is no new one")
    stopped = Bench()
    stopped.journal(stopping="stop")
    demand(stopped.tick(10.0) is None, "it goes on after a stop")


@scenario
def idle_sources_say_so() -> None:
    bench = Bench()
    bench.rows.idle_ms = 50
    bench.rows.waiting = {0: [(1, 70, False)], 1: [(1, 90, False)]}
    bench.cut(0.0, 1_000)
    bench.rows.waiting = {0: [], 1: [(1, 95, False)]}
    demand(bench.cut(10.0, 1_049)["watermark"] == 65, "one that is silent for a moment")
    one = bench.cut(20.0, 1_050)
    demand((one["watermark"], one["idle"]) == (90, False), f"{one}")
    both = bench.cut(30.0, 1_099)
    demand((both["watermark"], both["idle"], bench.source.status().idle) == (90, True, True), f"{both}")
    bench.rows.waiting = {0: [(1, 96, False)], 1: []}
    awake = bench.cut(40.0, 1_200)
    demand((awake["watermark"], awake["idle"], bench.source.status().idle) == (91, False, False), f"{awake}")
    # While Tables are loaded nothing is read, and nobody becomes idle by it.
    waits = Bench(turn=2, begins=(20, FOREVER))
    waits.rows.idle_ms = 50
    for number in range(4):
        empty = waits.cut(100.0 * number, 1_000 + 100 * number)
        demand((empty["rows"], empty["idle"], empty["watermark"]) == (0, False, BEGINNING), f"{empty}")
    demand(not waits.rows.asked, "it is read")
    waits.journal(begins=(20, 30))
    begun = waits.cut(400.0, 1_400)
    demand(begun["epoch"] == 30 and len(waits.rows.asked) == 2, f"{begun}")
    begun = waits.cut(410.0, 1_410)
    demand(begun["epoch"] == 31, f"{begun}")
    other = Bench(begins=(FOREVER,))
    other.cut(0.0)
    demand(bool(other.rows.asked), "one that waits for nobody")


@scenario
def source_hands_over_at_one_epoch() -> None:
    bench = Bench()
    bench.cut(0.0)
    demand(bench.source.status().begun == -1, "nobody has asked")
    replace = Replace(1, "s", (S3,), EVERYTHING.split(2), True)
    bench.journal(replaces=(replace,))
    demand(bench.source.status().begun == 5 and bench.tick(10.0) is None, "it cuts while that is agreed on")
    bench.journal(replaces=(with_fields(replace, at=5),))
    demand(bench.tick(11.0) is None, "it is there")
    bench.journal(replaces=(with_fields(replace, at=8),))
    asked = bench.tick(12.0)
    assert asked is not None
    demand((asked.epoch, asked.record["rows"], asked.record["ended"]) == (8, 0, False), f"{asked}")
    demand(bench.source.status().begun == -1, "before it is written")
    bench.desk.answer(StoreReply(asked.token))
    demand(bench.source.status().begun == 8, f"{bench.source.status()}")
    demand(bench.trim(8) == [], "whoever comes after it reads its log")
    bench.journal(with_fields(MINE, last=8, role=SEALED))
    demand(bench.tick(100.0) is None, "its life is over")
    status = bench.source.status()
    demand(status.drained and not status.ended, f"{status}")
    ended = Bench()
    ended.rows.waiting = {0: [(1, 70, True)], 1: [(1, 90, True)]}
    ended.cut(0.0)
    ended.journal(replaces=(with_fields(replace, at=8),))
    demand(ended.source.status().begun == FOREVER and ended.tick(10.0) is None, "its input has ended")


@scenario
def log_is_cut_where_nobody_needs_it() -> None:
    bench = Bench()
    bench.cut(0.0)
    bench.cut(10.0)
    bench.cut(20.0)
    demand(bench.trim(4) == [] and bench.trim(6) == [6] and bench.trim(6) == [] and bench.trim(7) == [7], "not there")
    read = Replace(1, "", (), (), False, 8)
    bench.cut(30.0)
    bench.journal(replaces=(read,))
    demand(bench.trim(8) == [], "a savepoint asks where it stood")
    bench.journal(replaces=())
    bench.cut(40.0)
    demand(bench.trim(9) == [9], "nobody asks any more")
    bench.source.stop()
    bench.subscribe()
    demand(not bench.announced() and bench.tick(100.0) is None and bench.source.status().epoch == -1, "it goes on")


@scenario
def log_is_cut_a_while_after_a_sink_has_committed() -> None:
    """It needs no checkpoint for that, so it trims at once; and an epoch to be fixed is chosen by what was reported."""
    bench = Bench(taker="sink")
    found = []
    for number, now_ms in enumerate((0.0, 50.0, 110.0, 150.0, 220.0, 330.0)):
        bench.cut(now_ms)
        found.append(bench.trim(5 + number))
    demand(found == [[], [], [], [], [7], [9]], f"{found}")
    bench.journal(replaces=(Replace(1, "", (), (), False, 12),))
    bench.cut(440.0)
    demand(bench.trim(11) == [], "a savepoint asks where it stood")
