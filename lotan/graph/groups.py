"""The column `batch`, which splits the vertices into groups: its values are checked, and the groups are counted.

The groups are numbered from 0. In the graph's own table, the number is the last of the features.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lotan.errors import GraphError
from lotan.graph.columns import require_columns
from lotan.graph.faults import fault, wrong_type
from lotan.graph.kinds import accepts, kind_of_arrow

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

MOST_GROUPS = 65_536
"""The most groups of a graph. Each partition has a row for each of them where a model sums by group."""

MEND = "Number the groups of vertices from 0, without gaps"


@dataclass(frozen=True)
class GroupNumbers:
    """A summary of the numbers of groups of all vertices."""

    wrong: int  # vertices whose number is null, no whole number, or below 0
    example: object  # such a number, or None
    greatest: float
    distinct: int

    def count(self, column: str) -> int:
        """Return the number of groups.

        Raises:
            GraphError: a number is missing, negative or no whole number; there are too many groups, or one is empty.
        """
        if self.wrong:
            said = "rows whose number is no whole number from 0"
            raise fault("vertices", column, said, f"{MEND}.", self.wrong, str(self.example))
        groups = int(self.greatest) + 1
        if groups > MOST_GROUPS:
            raise fault(
                "vertices",
                column,
                f"numbers groups up to {groups - 1:,}; at most {MOST_GROUPS:,} are taken",
                f"{MEND}.",
            )
        if self.distinct < groups:
            said = f"numbers groups up to {groups - 1:,}, but {groups - self.distinct:,} of these have no vertex"
            raise fault("vertices", column, said, f"{MEND}, as in pandas.factorize(column)[0].")
        return groups


def numbers_of_groups(parts: Iterable[npt.NDArray[np.floating[Any]]]) -> GroupNumbers:
    """Return what is known of the numbers of groups of all vertices, which come in parts [vertices of a part]."""
    wrong, example, greatest = 0, None, 0.0
    known: npt.NDArray[Any] = np.zeros(0)
    for numbers in parts:
        bad = ~np.isfinite(numbers) | (numbers < 0) | (numbers != np.floor(numbers))
        if bad.any() and example is None:
            example = numbers[np.argmax(bad)].item()
        wrong, fine = wrong + int(bad.sum()), numbers[~bad]
        greatest = max(greatest, float(fine.max(initial=0)))
        known = np.union1d(known, fine[fine < MOST_GROUPS])
    return GroupNumbers(wrong, example, greatest, len(known))


def groups_of_table(table: Dataset, column: str) -> GroupNumbers:
    """Return what is known of the numbers of groups in a column of a table in files. No other column is read.

    Raises:
        GraphError: there is no such column, or it has no numbers.
    """
    require_columns("vertices", [column], table.schema.names)
    if not accepts("number", kind_of_arrow(table.schema.field(column).type)):
        raise wrong_type("vertices", column, str(table.schema.field(column).type))
    batches = table.scanner(columns=[column]).to_batches()
    return numbers_of_groups(
        batch.column(0).cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64) for batch in batches
    )


def no_groups_here(what: str) -> GraphError:
    """Return the error for something that cannot be done with a graph that has groups."""
    return GraphError(f"{what} does not take a graph with groups (batch=) yet; make the graph without batch for it.")
