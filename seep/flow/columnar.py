"""`apply` of a BatchOperator as a vertex: what it checks, what it gives."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from operators.batch_operator import BatchApply, BatchOperator, tables_of
from operators.step import DEAD_LETTERS
from seep.errors import Misuse
from seep.flow.logical import Input, Tap
from seep.model.schema import physical

if TYPE_CHECKING:
    import pyarrow as pa

    from seep.flow.stream import Applied, Stream


def users_batches(operator: BatchOperator, arguments: dict[str, Any], name: str, ports: tuple[int, ...]) -> BatchApply:
    """Each partition has its own copy of the user's object."""
    return BatchApply(operator=copy.copy(operator), name=name, ports=ports, **arguments)


def apply_batches(
    operator: BatchOperator, streams: tuple[Stream, ...], outputs: dict[str, pa.Schema], on_error: str
) -> Applied:
    """``streams``: the inputs, of which all are keyed, or none is."""
    from seep.flow.keyed import hint_of, kept_time
    from seep.flow.stream import Applied

    stream = streams[0]
    if type(operator).on_batch is BatchOperator.on_batch:
        raise Misuse(f"{type(operator).__name__} must have its own on_batch")
    if stream.keys is None:
        raise Misuse("a BatchOperator works by key; call key_by(..) before it, or use map_batch")
    if any(other.keys != stream.keys for other in streams):
        raise Misuse("the inputs of a BatchOperator have key columns of other names; rename them")
    arguments: dict[str, Any] = {
        "keys": stream.keys,
        "inputs": tuple(one.schema for one in streams),
        "outputs": outputs,
        "on_error": on_error,
    }
    BatchApply(operator, "apply", **arguments)  # refuses states that do not go with the key
    schemas = {**{name: physical(schema) for name, schema in outputs.items()}, "errors": DEAD_LETTERS}
    inputs = tuple(Input(one.lineage, one.keys, one.schema) for one in streams)
    make = partial(users_batches, operator, arguments)
    hint, stateful = hint_of("apply", stream.keys), bool(tables_of(operator))
    vertex = stream._operator("apply", make, schemas, inputs, hint, stateful)
    return Applied(stream.flow, Tap(vertex, "out"), schemas["out"], None, kept_time(stream, schemas["out"]))
