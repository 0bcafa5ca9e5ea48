"""Drawn breakages that nothing can find, by their text, and why: nobody could tell the difference."""

SURVIVORS: dict[str, str] = {
    "buffer.trim(newest.epoch)  ->  pass": "memory only: what was trimmed is kept until the next Trim, never asked for",
    'progress = Progress(epoch, record["now"], record["watermark"], 0, record["ended"], record["idle"])  ->  '
    'progress = Progress(epoch, record["now"], record["watermark"], (1), record["ended"], record["idle"])': (
        "the digest of an epoch without rows may be any constant"
    ),
}
