"""Drawn breakages that nothing can find, by their text, and why: nobody could tell the difference."""

SURVIVORS: dict[str, str] = {
    "buffer.trim(newest.epoch)  ->  pass": "memory only: what was trimmed is kept until the next Trim, never asked for",
    'progress = Progress(epoch, record["now"], record["watermark"], 0, record["ended"], record["idle"])  ->  '
    'progress = Progress(epoch, record["now"], record["watermark"], (1), record["ended"], record["idle"])': (
        "the digest of an epoch without rows may be any constant"
    ),
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
    'partition, key_range, after + 1, FOREVER, LIVE, Generation(term, 0), "", base_epoch=after  ->  '
    'partition, key_range, after + 1, FOREVER, LIVE, Generation(term, (1)), "", base_epoch=after': (
        "a partition gets a generation of its own when it is placed; nobody acts under this one"
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
}
