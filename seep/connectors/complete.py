"""Rows that come as columns, without those that lack a value where one is declared: these are dead letters."""

from __future__ import annotations

import json

import pyarrow as pa

from seep.connectors.contract import Refused
from seep.model.fitting import whole


def complete(record: pa.RecordBatch, declared: pa.Schema) -> tuple[pa.RecordBatch, list[Refused]]:
    """The others, and these with their number in the record.

    >>> rows, refused = complete(pa.record_batch({"n": [1, None]}), pa.schema([pa.field("n", pa.int64(), False)]))
    >>> rows.to_pylist(), refused
    ([{'n': 1}], [Refused(text='{"n": null}', reason="column 'n' has no value; declare it `T | None`", position=1)])
    """
    reasons: dict[int, str] = {}
    for field in declared:
        if not field.nullable or pa.types.is_nested(field.type):
            there = whole(record.column(field.name), field)
            if there.true_count != len(there):
                place = " in it" if pa.types.is_nested(field.type) else ""
                why = f"column {field.name!r} has no value{place}; declare it `T | None`"
                for number, ok in enumerate(there.to_pylist()):
                    if not ok:
                        reasons.setdefault(number, why)
    if not reasons:
        return record, []
    numbers = sorted(reasons)
    refused = [
        Refused(json.dumps(row, default=str), reasons[number], number)
        for number, row in zip(numbers, record.take(pa.array(numbers)).to_pylist(), strict=True)
    ]
    return record.filter(pa.array([number not in reasons for number in range(record.num_rows)])), refused
