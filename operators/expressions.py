"""Checks and plans of Polars expressions while a flow is built.

An expression must not look at neighbouring rows, since how rows are cut into batches would show: it is evaluated on
generated rows, whole and one at a time, and refused when the two differ (Polars' own `is_row_separable` is not
reliable).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from operators.samples import sample_frames
from operators.stateless import Project, columns_read, evaluated, frame_of
from seep.errors import Misuse
from seep.model.schema import physical, refuse_names


def project(
    name: str,
    schema: pa.Schema,
    expressions: Sequence[pl.Expr],
    keep: bool,
    on_error: str = "dead_letter",
) -> Project:
    """Plan a `select` (``keep=False``) or `with_columns` (``keep=True``), checking columns and neighbours."""
    empty = empty_frame(schema)
    columns: dict[str, str | None] = {field: field for field in schema.names} if keep else {}
    types: dict[str, pa.Field] = {field.name: field for field in schema} if keep else {}
    computed: list[pl.Expr] = []
    for expression in expressions:
        result = evaluate_empty(empty, expression)
        copied = expression.meta.is_column_selection(allow_aliasing=True)
        outputs = normalise_empty(result)
        copies = empty.select(expression.meta.undo_aliases()).columns if copied else outputs.names
        for field, old in zip(outputs, copies, strict=True):
            if not keep and field.name in columns:
                raise Misuse(f"column {field.name!r} is given twice")
            columns[field.name] = old if copied else None
            types[field.name] = schema.field(old).with_name(field.name) if copied else field
        if not copied:
            refuse_neighbours(expression, schema)
            computed.append(expression)
    if not columns:
        raise Misuse("no column is left; name at least one")
    refuse_names(new for new, old in columns.items() if new != old)
    return Project(name, tuple(columns.items()), tuple(computed), pa.schema(list(types.values())), on_error)


def one_value(schema: pa.Schema, expression: pl.Expr) -> pa.DataType:
    """Check that the expression is one value for each row, and of this row alone; the type of it."""
    result = evaluate_empty(empty_frame(schema), expression)
    if result.width != 1:
        raise Misuse(f"{expression} gives {result.width} columns; give one expression for each")
    refuse_neighbours(expression, schema)
    return normalise_empty(result).field(0).type


def condition(schema: pa.Schema, expression: pl.Expr) -> pl.Expr:
    """Check that the expression is one boolean for each row."""
    if not isinstance(expression, pl.Expr):
        raise Misuse(f"{expression!r} is no Polars expression, such as pl.col('gone')")
    result = evaluate_empty(empty_frame(schema), expression)
    if result.width != 1 or result.dtypes[0] not in (pl.Boolean, pl.Null):
        raise Misuse(f"a condition must give one boolean, this gives {result.schema}")
    refuse_neighbours(expression, schema)
    return expression


def evaluate_empty(empty: pl.DataFrame, expression: pl.Expr) -> pl.DataFrame:
    try:
        return empty.select(expression)
    except pl.exceptions.ColumnNotFoundError as error:
        missing = sorted(columns_read(expression).difference(empty.columns))
        what = f"unknown column {missing[0]!r}" if missing else str(error).splitlines()[0]
        raise Misuse(f"{what}; there are {', '.join(empty.columns)}") from error
    except pl.exceptions.PolarsError as error:
        raise Misuse(f"the expression does not fit the columns: {str(error).splitlines()[0]}") from error


def normalise_empty(frame: pl.DataFrame) -> pa.Schema:
    """The plain Arrow types of a frame's columns; refuses those that only Polars has."""
    for name, kind in frame.schema.items():
        if _is_foreign(kind):
            raise Misuse(f"{name!r} would be a column of {kind}, which there is not; cast it")
    return physical(frame.clear().to_arrow().schema)


def _is_foreign(kind: Any) -> bool:
    if isinstance(kind, pl.Struct):
        return any(_is_foreign(field.dtype) for field in kind.fields)
    if isinstance(kind, pl.List | pl.Array):
        return _is_foreign(kind.inner)
    return str(kind) in ("Object", "Int128", "UInt128")


def refuse_neighbours(expression: pl.Expr, schema: pa.Schema) -> None:
    """Refuse an expression whose value for a row depends on other rows.

    >>> refuse_neighbours(pl.col("x").cum_sum(), pa.schema([("x", pa.int64())]))
    Traceback (most recent call last):
    seep.errors.Misuse: the expression looks at neighbouring rows, it must be row by row: col("x").cum_sum()

    More or fewer values than rows are refused, too: where their number happens to fit, they would get to other rows.
    """
    parts = list(_parts(expression))
    for part in parts:
        if _looks_around(part, schema, whole=part is expression):
            raise Misuse(f"the expression looks at neighbouring rows, it must be row by row: {expression}")
    if any(map(_changes_length, parts)) or _is_no_single_value(expression, schema):
        hint = "filter(..) drops rows, flat_map(..) makes several of one"
        raise Misuse(f"the expression must give one value for each row ({hint}): {expression}")


def _parts(expression: pl.Expr) -> Iterator[pl.Expr]:
    """The expression and all that it is made of: what stands behind a condition that no generated row meets would not
    show in the whole. Columns and plain values are not worth a look."""
    yield expression
    for inner in expression.meta.pop():
        if not inner.meta.is_column_selection() and not inner.meta.is_literal():
            yield from _parts(inner)


def _looks_around(expression: pl.Expr, schema: pa.Schema, whole: bool) -> bool:
    """``whole``: it must be one value for each row; of a part that is not (a list of values) nothing is said."""
    if expression.meta.has_multiple_outputs():
        expression = pl.struct(expression)
    for frame in sample_frames(schema):
        try:
            for i in range(frame.height):
                frame.slice(i, 1).with_columns(expression.alias("__value"))
        except pl.exceptions.PolarsError:
            # These rows do not suit it (text that is no number); the next may. If together they do, it looks around.
            if whole and _suits(frame, expression):
                return True
            continue
        try:
            together = frame.with_columns(expression.alias("__value")).get_column("__value")
            single = [evaluated(frame.slice(i, 1), [expression.alias("__value")]) for i in range(frame.height)]
            alone = pl.concat([part.get_column("__value") for part in single])
        except pl.exceptions.PolarsError:
            if whole:
                return True
            continue
        if not together.equals(alone, check_dtypes=True, null_equal=True):
            return True
    return False


def _suits(frame: pl.DataFrame, expression: pl.Expr) -> bool:
    try:
        frame.with_columns(expression.alias("__value"))
    except pl.exceptions.PolarsError:
        return False
    return True


_RESIZING = ("Explode", "Filter", "Gather", "Slice")
_RESIZING_FUNCTIONS = ("DropNans", "DropNulls")


def _changes_length(part: pl.Expr) -> bool:
    """Does this step of an expression, by what it is, take values out of a column or put some in?

    Generated rows need not show it: text without a space has one word. Inside of lists, where no column can be
    named, it may.
    """
    if not columns_read(part):
        return False
    try:
        ((kind, inner),) = json.loads(part.meta.serialize(format="json")).items()
    except (pl.exceptions.PolarsError, ValueError):  # a user's function inside
        return False
    return kind in _RESIZING or (kind == "Function" and inner["function"] in _RESIZING_FUNCTIONS)


def _is_no_single_value(expression: pl.Expr, schema: pa.Schema) -> bool:
    for frame in sample_frames(schema):
        for i in range(frame.height):
            try:
                if frame.slice(i, 1).select(expression).height != 1:
                    return True
            except pl.exceptions.PolarsError:
                continue
    return False


_CALM_FUNCTIONS = ("FillNull", {"Boolean": "IsNull"}, {"Boolean": "IsNotNull"}, {"Boolean": "Not"})


def never_raises(expression: pl.Expr, schema: pa.Schema) -> bool:
    """Is it certain that no row makes this expression fail? So it is of comparisons, logic and arithmetic over plain
    columns; a cast or a function of text may fail, decimals overflow.

    >>> numbers = pa.schema({"x": pa.int64()})
    >>> never_raises((pl.col("x") + 1 > 2).alias("y"), numbers), never_raises(pl.col("x").cast(pl.Int8), numbers)
    (True, False)
    """
    kinds = [schema.field(name).type for name in columns_read(expression)]
    if any(pa.types.is_nested(kind) or pa.types.is_decimal(kind) for kind in kinds):
        return False
    try:
        return _is_calm(json.loads(expression.meta.serialize(format="json")))
    except (pl.exceptions.PolarsError, ValueError):  # a user's function inside
        return False


def _is_calm(node: Any) -> bool:
    """``node``: of an expression, as Polars writes it down."""
    if not isinstance(node, dict) or len(node) != 1:
        return False
    ((kind, inner),) = node.items()
    match kind:
        case "Column" | "Literal":
            return True
        case "Alias":
            return _is_calm(inner[0])
        case "BinaryExpr":
            return _is_calm(inner["left"]) and _is_calm(inner["right"])
        case "Ternary":
            return all(_is_calm(inner[part]) for part in ("predicate", "truthy", "falsy"))
        case "Function":
            return inner["function"] in _CALM_FUNCTIONS and all(map(_is_calm, inner["input"]))
    return False


def empty_frame(schema: pa.Schema) -> pl.DataFrame:
    return frame_of(pa.RecordBatch.from_pylist([], schema=schema))
