"""Drawn breakages that nothing can find, by their text, and why: nobody could tell the difference."""

SURVIVORS: dict[str, str] = {
    "@lru_cache(maxsize=1024)  ->  @lru_cache(maxsize=(1023))": "how much is remembered of what is looked up often",
    "self.state_bytes = 0 if full.state is None else full.state.size_bytes  ->  "
    "self.state_bytes = (-1) if full.state is None else full.state.size_bytes": (
        "tuning: what has no state and an empty buffer is saved as an increment where it might as well be in full"
    ),
    "if low > self._edges[0] and goal - self.below(low - 1) * parts < self.below(low) * parts - goal:  ->  "
    "if low > self._edges[(1)] and goal - self.below(low - 1) * parts < self.below(low) * parts - goal:": (
        "tuning: in the first stretch of equal load a cut may lie one bucket behind the nearest"
    ),
    "buffer.trim(newest.epoch)  ->  pass": "memory only: what was trimmed is kept until the next Trim, never asked for",
    "epoch = last.epoch if last is not None else -1  ->  epoch = last.epoch if last is not None else -(2)": (
        "only compared with what was reached before, which is never less than -1"
    ),
    "tries = self.tries[replace.operator] = self.tries.get(replace.operator, 0) + 1  ->  "
    "tries = self.tries[replace.operator] = self.tries.get(replace.operator, 0) + (2)": (
        "tuning: how often a Replace that failed is begun anew by itself"
    ),
    "self._seal()  ->  pass": (
        "in adopt: the switch lies later than any epoch an old one was to stop at, so one that is past it has announced"
        " every epoch up to it; receivers refuse what it says of later ones. What is left is memory, until they trim"
    ),
    "self.moment = Moment(0, 0, BEGINNING, BEGINNING)  ->  self.moment = Moment(0, (-1), BEGINNING, BEGINNING)": (
        "the clock before the first epoch: the later of it and the first epoch's is taken"
    ),
    "self.me = me  ->  pass": "Protection's: set again by the first adopt, which precedes every use",
    "self.taken = 0  ->  self.taken = (-1)": "set to the restored epoch before anything is taken or asked for",
    "self.refused = 0  ->  self.refused = (-1)": "set again when the first holder is chosen, which precedes every use",
    "return {name: batches[0].concat(batches) if len(batches) > 1 else batches[0] for name, batches in merged.items()}"
    "  ->  return {name: batches[0].concat(batches) if len(batches) > (0) else batches[0] for name, batches in"
    " merged.items()}": "one batch joined with nothing is itself",
    "first = max([1 + min(reached), ahead, *(journal.entries[p].first for p in (*replace.old, *replace.new))])  ->  "
    "first = max([(0) + min(reached), ahead, *(journal.entries[p].first for p in (*replace.old, *replace.new))])": (
        "tuning: the switch may lie anywhere after the bases, which begins every new life (DESIGN 3)"
    ),
    "self.order = [c for c in self.order if (c.edge.name, c.sender.partition) in self.channels]  ->  pass": (
        "a sender whose life is over is passed over by take and bound; the next journal names the senders anew"
    ),
    "tries = self.tries[replace.operator] = self.tries.get(replace.operator, 0) + 1  ->  "
    "tries = self.tries[replace.operator] = self.tries.get(replace.operator, (1)) + 1": (
        "tuning: how often a Replace that failed is begun anew by itself"
    ),
    'return f"{_work(said)} goes on for {said.busy_ms / 1000:.1f} s" if said.busy_ms > long_ms and not known else ""'
    '  ->  return f"{_work(said)} goes on for {said.busy_ms / (1001):.1f} s" if said.busy_ms > long_ms and not known'
    ' else ""': "a text for people",
    "self.credited = inputs.taken  ->  pass": "credit is given more often than it need be",
    "return self.begins[turn - 1] if turn else 0  ->  return self.begins[turn - 1] if turn else (-1)": (
        "the later of it and the next epoch is taken"
    ),
    "self._turn = -1  ->  self._turn = -(2)": "any number that no turn has",
    "self._token = 0  ->  self._token = (1)": "tokens only have to differ",
    "self.wall_ms = 0  ->  pass": "set by the first tick, which precedes every use",
    "for worker in resting[: max(0, len(there) - want)]:  ->  for worker in resting[: max((-1), len(there) - want)]:": (
        "while one that is wanted starts, others at rest are let go, and wanted again: nothing but time is lost"
    ),
    "self._append(replace.at, self._record(self.cut_wall_ms, 0, {}, ended=False), {})  ->  "
    "self._append(replace.at, self._record(self.cut_wall_ms, (-1), {}, ended=False), {})": "a count for people",
    "self.chain = 0  ->  self.chain = (1)": "tuning: the first chain of increments is one shorter",
    "max(self.epoch + 1, self.outputs.highest), self._record(self.cut_wall_ms, 0, {}, ended=True), {}  ->  "
    "max(self.epoch + (2), self.outputs.highest), self._record(self.cut_wall_ms, 0, {}, ended=True), {}": (
        "a drained source's last epoch may be any later one"
    ),
    "self.asked.tries.pop(replace.operator, None)  ->  pass": (
        "tuning: how often a failed Replace is begun anew by itself"
    ),
    "waits = self.catching_up and behind_ms > every_ms / 4 and passed_ms < 2 * every_ms  ->  "
    "waits = self.catching_up and behind_ms > every_ms / 4 and passed_ms < (3) * every_ms": (
        "tuning: how long a checkpoint waits while one that was restored catches up"
    ),
    "self.desk.changed = True  ->  pass": (
        "of a sink that has read its log: the controller hears it with the next report, a tenth of a second later; of"
        " the others a directed schedule sees that they are prompt"
    ),
    "if upcoming > stop and bound >= stop and stop < FOREVER:  ->  "
    "if upcoming > stop and bound >= stop and stop >= FOREVER:": (
        "a hand-over of sinks in an epoch that nobody announces any more: an operator was moved there for a merge that"
        " was given up, and then died. It is given up in time, and begun anew"
    ),
    "at = 2 + max(statuses[p].epoch for p in old) if merges and not handover else 0  ->  "
    "at = (1) + max(statuses[p].epoch for p in old) if merges and not handover else 0": (
        "tuning: a merge's epoch that has passed already is decided again"
    ),
    "self.unseen = 0  ->  self.unseen = (1)": "any number that is no version",
    "self.catching_up = True  ->  pass": "tuning: a checkpoint in the middle of catching up",
    "return again_bytes <= 2 * self.state_bytes or self.chain >= LONG_CHAIN  ->  "
    "return again_bytes <= (3) * self.state_bytes or self.chain >= LONG_CHAIN": "tuning: when a full one is written",
    "newest = max((known.statuses[p].epoch for p in replace.old if p in known.statuses), default=0)  ->  "
    "newest = max((known.statuses[p].epoch for p in replace.old if p in known.statuses), default=(1))": (
        "nothing is heard of the old ones: the switch lies after what the new ones have reached"
    ),
    "return again_bytes <= 2 * self.state_bytes or self.chain >= LONG_CHAIN  ->  "
    "return again_bytes <= (1) * self.state_bytes or self.chain >= LONG_CHAIN": (
        "tuning: when all of the state is written again instead of one more increment"
    ),
    "self._known = {partition: known._replace(times=0, crashes=0) for partition, known in self._known.items()}  ->  "
    "pass": (
        "no epoch of the simulator's flows has enough rows that kill for a neighbour to be given up meanwhile; a unit"
        " test is about it (tests/unit/test_poison.py)"
    ),
    "self._desk.changed = True  ->  pass": "in accuse: it is told with the next report, which comes by itself",
    "self._since_ms = 0.0  ->  pass": "set by the first look, which precedes every use",
    "elif part is None or section.key_range == EVERYTHING or section.key_range.overlaps(part):  ->  "
    "elif part is None or section.key_range != EVERYTHING or section.key_range.overlaps(part):": (
        "more sections are read than need be; of each only what lies in the range is taken"
    ),
    "e.role != LIVE or e.base for e in self.journal.entries.values()  ->  "
    "e.role == LIVE or e.base for e in self.journal.entries.values()": (
        "tuning: whether the controller acts on a report at once or at its next tick"
    ),
    "self._count()  ->  pass": "at the same moment it is asked for, or was too large already: both say it, too",
    "self.holder, self.held, self.refused = chosen, 0, 0  ->  self.holder, self.held, self.refused ="
    " chosen, 0, (-1)": "only compared with versions, which begin with 1",
    "self.wall_ms = 0  ->  self.wall_ms = (-1)": "set by the first tick, before anything is cut",
    "self._token = 0  ->  self._token = (-1)": "tokens only have to differ",
    "self.highest = 0  ->  self.highest = (-1)": ("the later of it and what is taken is told, and epochs begin with 1"),
    "now_ms, watermark, ended, idle, active, reached = 0, FOREVER, True, False, False, BEGINNING  -> "
    " now_ms, watermark, ended, idle, active, reached = (-1), FOREVER, True, False, False, BEGINNING": (
        "the later of it and the senders' clocks, none of which is before 0"
    ),
    "while channel.queue and channel.queue[-1][0].epoch > entry.last:  ->  while channel.queue and"
    " channel.queue[-(0)][0].epoch > entry.last:": (
        "nobody takes what is later than the life of its sender; at most one more epoch without rows is told"
    ),
    "if message.upto > trims.get(message.receiver, -1):  ->  if message.upto >"
    " trims.get(message.receiver, -(2)):": "nothing is trimmed by it: entries begin with epoch 1",
    "if message.upto > trims.get(message.receiver, -1):  ->  if message.upto >"
    " trims.get(message.receiver, -(0)):": "nothing is trimmed by it: entries begin with epoch 1",
    "return self.buffers[edge].trim(min((trims.get(e.partition, -1) for e in receivers), default=-1)) "
    " ->  return self.buffers[edge].trim(min((trims.get(e.partition, -1) for e in receivers),"
    " default=-(0)))": "nothing is trimmed by it: entries begin with epoch 1",
    "self.credited = -1  ->  self.credited = -(2)": "any number below the first epoch",
    "return self.wary.care(epoch, -1)  ->  return self.wary.care(epoch, -(0))": (
        "a call is looked for in all epochs of a sink: one epoch more or less is beyond the last"
    ),
    "(rows, _), record = next(own, ((0, 0), None))  ->  (rows, _), record = next(own, ((0, (-1)), None))": (
        "the digest is passed over"
    ),
    "number = 0 if isinstance(count, bool) else index(count)  ->  number = (-1) if isinstance(count,"
    " bool) else index(count)": "no number either: it is refused in the same words",
    "journal = start_shadows(journal, replace, dict.fromkeys(replace.old, (0, replace.at)))  ->  journal"
    " = start_shadows(journal, replace, dict.fromkeys(replace.old, ((-1), replace.at)))": (
        "sources and sinks begin from logs: the version is not looked at"
    ),
    "more = now + math.ceil(now / 4) if late > self.goal_seconds and name == busiest else 0  ->  more ="
    " now + math.ceil(now / 4) if late > self.goal_seconds and name == busiest else (1)": (
        "the largest is taken, and a wish of rates is one at least"
    ),
    "kept = now if late > self.goal_seconds / 2 else 0  ->  kept = now if late > self.goal_seconds / 2"
    " else (-1)": "the largest is taken, and a wish of rates is one at least",
    "old, ranges = plan_scale(live, max(1, request.count), loads_of(statuses))  ->  old, ranges ="
    " plan_scale(live, max((0), request.count), loads_of(statuses))": "as many as are joined leave one at least",
    "there = form(inner[0])  ->  there = form(inner[(-1)])": "there is one only",
    "return view if address % 8 == 0 else bytes(view)  ->  return view if address % (7) == 0 else"
    " bytes(view)": "tuning: which message is copied so that its columns lie well; all are read",
    "if magic != MAGIC or _SUM.unpack_from(view, _HEAD.size)[0] != zlib.crc32(view[: _HEAD.size]):  -> "
    " if magic != MAGIC or _SUM.unpack_from(view, _HEAD.size)[(-1)] != zlib.crc32(view[: _HEAD.size]):": (
        "there is one only"
    ),
    "if tail < 0:  ->  if tail < (-1):": "what is shorter by one byte is refused by the read of its end",
    "@lru_cache(maxsize=1024)  ->  @lru_cache(maxsize=(1025))": "tuning: how many schemas are remembered",
}
