"""A classifier from a Parquet file that need not fit into memory: one batch of rows after another.

    python docs/examples/parquet.py people.parquet churned     # a file, and its column of labels
    python docs/examples/parquet.py                            # a small file of its own

Kernels and relevances are learned from the first batch, so that it is a sample of the whole file. All other rows are
read once; beyond 5,000 rows only sums over them are kept. The last tenth of the row groups is held out to measure the
accuracy.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow
from pyarrow import parquet

import kernel_embed as ke

FIRST = 5_000
"""Rows of the first batch, at most a quarter of the file."""
BATCH = 50_000
"""Rows of the others."""


def write_table(path: pathlib.Path, n: int = 1_500) -> None:
    """Two numbers, a text and a label, in row groups of 150 rows."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"u": rng.normal(size=n), "v": rng.normal(size=n), "town": rng.choice(["A", "B", "C"], size=n)}
    )
    score = np.sin(3 * frame["u"]) + frame["v"] * (frame["town"] == "A") + 0.2 * rng.normal(size=n)
    frame["label"] = np.where(score > 0, "yes", "no")
    parquet.write_table(pyarrow.Table.from_pandas(frame), path, row_group_size=150)


def batches(file: parquet.ParquetFile, groups: list[int], share: float, first: bool) -> Iterator[pd.DataFrame]:
    """The rows of the first batch, which are this share of every row group, or all others in larger batches."""
    parts: list[pd.DataFrame] = []
    for group in groups:
        table = file.read_row_group(group).to_pandas()
        chosen = np.random.default_rng(group).uniform(size=len(table)) < share
        parts.append(table[chosen if first else ~chosen])
        if not first and sum(map(len, parts)) >= BATCH:
            yield pd.concat(parts, ignore_index=True)
            parts = []
    if parts:
        yield pd.concat(parts, ignore_index=True)


def main(path: pathlib.Path, label: str) -> None:
    """Learn from all but the last row groups, and print the accuracy on those."""
    file = parquet.ParquetFile(path)
    if file.num_row_groups < 2:
        raise SystemExit(f"{path} has one row group. Write it with row_group_size=50_000, for example.")
    groups = list(range(file.num_row_groups))
    held_out = groups[-max(1, len(groups) // 10) :]
    groups = groups[: -len(held_out)]
    labels = [batch.to_pandas()[label].dropna().unique() for batch in file.iter_batches(columns=[label])]
    classes, num_rows = np.unique(np.concatenate(labels)), 0

    classifier = ke.MulticlassEmbeddingClassifier(random_state=0, progress=False)
    share = min(FIRST / file.metadata.num_rows, 0.25)
    for first in (True, False):
        for batch in batches(file, groups, share, first):
            classifier.partial_fit(batch.drop(columns=label), batch[label], classes=classes)
            num_rows += len(batch)

    test = file.read_row_groups(held_out).to_pandas()
    accuracy = (classifier.predict(test.drop(columns=label)) == test[label]).mean()
    print(f"{num_rows:,} rows, accuracy {accuracy:.3f} on {len(test):,} others")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(pathlib.Path(sys.argv[1]), sys.argv[2])
    else:
        with tempfile.TemporaryDirectory() as folder:
            write_table(pathlib.Path(folder) / "table.parquet")
            main(pathlib.Path(folder) / "table.parquet", "label")
