"""A call of the client library that may never return, in spite of the timeout it is given.

`send_offsets_to_transaction` (librdkafka 1.4 to 2.16 at least) asks the coordinator that it knows. When that broker was
down and is back, the client may have replaced its notion of the broker and still wait for the old one, for ever. A call
cannot be interrupted, so it is made on a thread of its own and left there: whoever has a transaction's client that does
not answer begins anew with another one, which fences it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from seep.connectors.kafka.client import Trouble

TROUBLED_SECONDS = 3.0
"""Once the client has reported something, a call that is under way gets so much time: mostly it will not return."""
POLL_SECONDS = 0.02


def overdue(call: Callable[[], object], poll: Callable[[float], object], trouble: Trouble, seconds: float) -> bool:
    """Makes the call, and meanwhile lets the client report. True: it has not returned. What it raises is raised."""
    raised: list[BaseException] = []
    done = threading.Event()

    def make() -> None:
        try:
            call()
        except BaseException as problem:
            raised.append(problem)
        finally:
            done.set()

    heard, deadline = trouble.heard, time.monotonic() + seconds
    # A daemon: a process may end while the call is still under way.
    threading.Thread(target=make, name="seep-kafka", daemon=True).start()
    while not done.wait(POLL_SECONDS):
        poll(0)
        if trouble.heard > heard:
            heard, deadline = 2**62, min(deadline, time.monotonic() + TROUBLED_SECONDS)
        if time.monotonic() > deadline:
            return True
    if raised:
        raise raised[0]
    return False
