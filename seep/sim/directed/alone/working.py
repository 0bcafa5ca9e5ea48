"""One operator partition by itself: what it takes, saves, hands on and says, and when it waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace as with_fields
from typing import Any

from seep.errors import Misuse
from seep.model.care import Condemned, Spot
from seep.model.epoch import Moment, Progress
from seep.model.ids import BEGINNING, FOREVER
from seep.partition.operator import BREATH_MS
from seep.protocol.effects import DropCheckpoints
from seep.protocol.journal import SEALED, SHADOW, Replace
from seep.protocol.messages import Credit, Frame, Refused, Trim
from seep.sim.directed.alone.desks import done
from seep.sim.directed.alone.worked import A0, MINE, S0, Bench
from seep.sim.directed.registry import demand, scenario


@scenario
def operator_takes_says_and_passes_on() -> None:
    bench = Bench()
    bench.subscribe()
    bench.sent(Frame)
    bench.frame(1, 3)
    bench.frame(2, 0, idle=True)
    frames = bench.sent(Frame)
    demand([f.progress.epoch for f in frames] == [1, 2] and frames[0].batch.rows == 3, f"{frames}")
    demand((frames[0].progress.watermark, frames[0].progress.now_ms) == (10, 1), f"{frames[0]}")
    demand(frames[1].progress.idle and frames[1].progress.watermark == 10, f"{frames[1]}")
    status = bench.operator.status()
    demand(
        (status.epoch, status.watermark, status.idle, status.ended, status.heard) == (2, 10, True, False, 2),
        f"{status}",
    )
    wanted = {"rows_in": 3, "rows_out": 3, "late": 3, "state_bytes": 32, "buffer_bytes": 96}
    demand({name: status.statistics[name] for name in wanted} == wanted, f"{status.statistics}")
    demand(bench.operator.outputs.sent == {"a>out": 3}, f"{bench.operator.outputs.sent}")
    demand(bench.logic.moments == [Moment(1, 1, BEGINNING, 10), Moment(2, 2, 10, 10, 10)], f"{bench.logic.moments}")
    bench.frame(3, 1, now_ms=1, watermark=5)
    demand(bench.logic.moments[-1] == Moment(3, 2, 10, 10, 10), "time goes back")
    bench.frame(4, 0, ended=True, watermark=90)
    demand(bench.logic.moments[-1] == Moment(4, 4, 10, FOREVER, 90), f"{bench.logic.moments[-1]}")
    (said,) = [f.progress for f in bench.sent(Frame) if f.epoch == 4]
    demand((said.ended, said.watermark) == (True, 90) and bench.operator.status().ended, f"{said}")
    credits = Bench()
    credits.subscribe()
    credits.sent(Credit)
    credits.frame(1)
    (credit,) = credits.sent(Credit)
    demand((credit.taken, credit.watermark, credit.highest) == (1, 10, 1), f"{credit}")
    credits.credit(1, watermark=7)
    demand(not credits.sent(Credit), "nothing was taken")
    credits.frame(2)
    demand([one.watermark for one in credits.sent(Credit)] == [7], "who is behind it is further back")
    credits.credit(2, highest=50)
    demand([(one.taken, one.highest) for one in credits.sent(Credit)] == [(2, 50)], "sources must hear of it")
    credits.credit(2, highest=50)
    demand(not credits.sent(Credit), "they have heard")


@scenario
def operator_waits_for_those_behind_it() -> None:
    bench = Bench(credit_epochs=1)
    bench.subscribe()
    for epoch in (1, 2, 3):
        bench.frame(epoch)
    demand(bench.operator.epoch == 2, f"epoch {bench.operator.epoch}")
    bench.credit(1)
    demand(bench.operator.epoch == 3, f"epoch {bench.operator.epoch}")
    full = Bench(buffer_bytes=64)
    for epoch in (1, 2, 3):
        full.frame(epoch)
    demand(full.operator.epoch == 2, f"epoch {full.operator.epoch}")
    full.trim(1)
    demand(full.operator.epoch == 3, "there is room")
    busy = Bench()
    busy.desk.clock = lambda: busy.clock_ms
    take = busy.logic.take

    def slowly(moment: Moment, inputs: Sequence[tuple[int, Any]]) -> Mapping[str, Any]:
        busy.clock_ms += BREATH_MS * 0.6
        return take(moment, inputs)

    busy.logic.take = slowly  # type: ignore[method-assign]
    (channel,) = busy.operator.inputs.order
    channel.queue.extend((Progress(epoch, 0, 0, 0), ()) for epoch in range(1, 6))
    channel.announced = 5
    busy.operator.advance()
    demand((busy.operator.epoch, busy.desk.more) == (2, True), f"{busy.operator.epoch}")
    busy.operator.advance()
    demand(busy.operator.epoch == 2, "it takes no breath")
    busy.tick(1.0)
    demand(busy.operator.epoch == 4 and busy.operator.taking.epochs == 0, f"{busy.operator.epoch}")
    rows = Bench()
    rows.desk.clock = lambda: rows.clock_ms
    rows.logic.take = busy.logic.take  # type: ignore[method-assign]
    rows.desk.clock = lambda: busy.clock_ms
    rows.frame(1)
    rows.frame(2, 3)
    seconds = BREATH_MS * 0.6 / 1000
    found = vars(rows.operator.taking)
    sums = (2, 2 * seconds, 1 + 3 * 3, (1 + 3) * seconds, 2 * seconds * seconds)
    demand(all(abs(a - b) < 1e-9 for a, b in zip(found.values(), sums, strict=True)), f"{found}")


@scenario
def operator_that_fails_takes_and_saves_no_more() -> None:
    for error, failure, accused in (
        (Misuse("no"), "Misuse: a: no", False),
        (Condemned(Spot("f", 3, 1), "f", False), "", True),
        (Condemned(Spot("f", 3, 1), "f", True), "Misuse: f: the process died again", False),
    ):
        bench = Bench()
        bench.frame(1)
        bench.logic.fails = error
        bench.desk.changed = False
        bench.frame(2)
        status = bench.operator.status()
        demand(status.failure.startswith(failure) and bool(status.failure) == bool(failure), status.failure)
        demand((status.accused is not None) == accused and bench.desk.changed, f"{status}")
        demand(status.accused is None or status.accused.epoch == 2, f"{status.accused}")
        bench.logic.fails = None
        bench.frame(3)
        bench.tick(5_000.0)
        demand(not bench.saved() and bench.operator.epoch == 1, "it goes on")
    refused = Bench()
    (channel,) = refused.operator.inputs.order
    assert channel.subscription is not None
    refused.operator.handle(Refused(channel.subscription, S0, "trimmed"))
    demand("needs epochs after 0 from s/0" in refused.operator.status().failure, refused.operator.status().failure)
    refused.frame(1)
    demand(refused.operator.epoch == 0, "it goes on")


@scenario
def operator_saves_in_time_and_trims() -> None:
    bench = Bench()
    bench.frame(3, 2)
    bench.tick(999.0)
    demand(not bench.saved(), "too early")
    bench.tick(1_000.0)
    (first,) = bench.saved()
    demand((first.epoch, first.parent, first.watermark, first.now_ms, first.ended) == (3, 0, 30, 3, False), f"{first}")
    demand([e.progress.epoch for e in first.buffers["a>out"]] == [3] and first.before is None, f"{first}")
    demand(first.counts == {"rows_in": 2, "rows_out": 2} and first.trimmed["a>out"].epoch == 0, f"{first}")
    demand([one.upto for one in bench.sent(Trim)] == [0], "one is not enough")
    status = bench.operator.status()
    demand((status.durable_epoch, status.durable_version, status.own_checkpoints) == (3, first.version, 1), f"{status}")
    bench.frame(5, 1)
    bench.tick(2_000.0)
    (second,) = bench.saved()
    demand((second.epoch, second.parent) == (5, first.version), f"{second}")
    demand(second.before is not None and second.before.version == first.version, f"{second.before}")
    demand([e.progress.epoch for e in second.buffers["a>out"]] == [5], "what is saved is saved again")
    demand(bench.logic.fulls == [True, False], f"{bench.logic.fulls}")
    demand([one.upto for one in bench.sent(Trim)] == [3], "it is not trimmed")
    bench.tick(3_000.0)
    (third,) = bench.saved()
    demand(third.epoch == 5, "the newest two are not both of it")
    drops = done(bench.desk, DropCheckpoints)
    demand([(one.below, one.keep) for one in drops] == [(third.version, (first.version, second.version))], f"{drops}")
    bench.sent(Trim)
    bench.tick(4_000.0)
    demand(not bench.saved() and [one.upto for one in bench.sent(Trim)] == [5], "said again, and nothing saved")
    bench.tick(4_100.0)
    demand(not bench.sent(Trim), "all the time")
    timed, ticks = Bench(), iter(range(100))
    timed.desk.clock = lambda: float(next(ticks))
    timed.operator.checkpoint()
    demand(timed.operator.paused_ms == 1.0, f"{timed.operator.paused_ms}")
    shadow = Bench(with_fields(MINE, role=SHADOW))
    shadow.tick(1.0)
    demand(len(shadow.saved()) == 1, "its first is waited for")
    shadow.tick(2.0)
    demand(not shadow.saved(), "and no other")
    live = Bench()
    live.tick(1.0)
    demand(not live.saved(), "nobody waits for it")


@scenario
def operator_keeps_an_epoch_and_ends_at_one() -> None:
    bench = Bench()
    bench.subscribe()
    bench.frame(1)
    merge = Replace(1, "a", (A0,), (), False, 3)
    bench.journal(replaces=(merge,))
    for epoch in (2, 4, 5):
        bench.frame(epoch)
    (kept,) = bench.saved()
    demand(kept.epoch == 3 and bench.operator.epoch == 5, f"{kept.epoch}")
    demand((bench.operator.status().fixed_version, bench.operator.status().fixed_epoch) == (kept.version, 3), "said")
    exact = Bench()
    exact.journal(replaces=(merge,))
    for epoch in (1, 3, 4):
        exact.frame(epoch)
    demand([one.epoch for one in exact.saved()] == [3], "not at its epoch")
    split = Bench()
    split.frame(1)
    split.journal(replaces=(with_fields(merge, at=0),))
    (made,) = split.saved()
    demand(made.epoch == 1 and split.operator.status().fixed_version == made.version, "nobody has made it")
    for _ in range(3):
        split.frame(split.operator.epoch + 1)
        split.operator.checkpoint()
        split.saved()
    demand(split.operator.status().fixed_version == made.version, "it is another one by now")
    demand({one.upto for one in split.sent(Trim)} <= {0, 1}, "it is trimmed past what is kept")
    demand(all(made.version in one.keep for one in done(split.desk, DropCheckpoints)), "it is dropped")
    sealed = with_fields(MINE, last=7, role=SEALED)
    bench.sent(Frame)
    bench.desk.changed = False
    bench.journal(sealed)
    bench.frame(6)
    demand(not bench.desk.changed and not bench.operator.status().drained, "before its last epoch")
    bench.frame(9)
    demand(bench.operator.epoch == 7 and bench.desk.changed, f"{bench.operator.epoch}")
    demand([f.epoch for f in bench.sent(Frame)] == [6, 7], "later than its life")
    bench.desk.changed = False
    bench.trim(6)
    demand(not bench.operator.status().drained, "something is needed")
    bench.trim(7)
    demand(bench.operator.status().drained and bench.desk.changed, "nobody is told")
    other = Bench()
    other.subscribe()
    other.journal(MINE)
    demand(bool(other.operator.outputs.cursors["a>out"]), "it is served no more")
    gone = other.desk.journal
    other.desk.journal = with_fields(gone, version=9, entries={e: gone.entries[e] for e in (A0, S0)})
    other.operator.adopt(MINE)
    demand(not other.operator.outputs.cursors["a>out"], "one that is gone is served")
    past = Bench()
    past.subscribe()
    for epoch in (1, 2, 3):
        past.frame(epoch)
    past.journal(with_fields(MINE, last=2, role=SEALED))
    demand([e.progress.epoch for e in past.operator.outputs.buffers["a>out"].entries] == [1, 2], "what lies after it")
    past.operator.stop()
    past.tick(9_000.0)
    demand(not past.saved() and past.operator.status().epoch == -1, "it goes on")


@scenario
def refused_upgrade_is_forgotten_with_its_replace() -> None:
    """Else the next one would be refused before it was tried."""
    bench = Bench()
    bench.frame(1)
    upgrade = Replace(1, "a", (A0,), (), False, 1, code="new")
    bench.journal(replaces=(upgrade,))
    bench.saved()
    demand("nobody can find" in bench.operator.status().refusal, bench.operator.status().refusal)
    bench.journal(replaces=())
    demand(bench.operator.status().refusal == "", bench.operator.status().refusal)
