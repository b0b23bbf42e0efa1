"""Learned rows that stay in Spark: each partition has those of its vertices, and the state that an optimizer has of them.

A step makes new rows of those before it and of their gradient, in tasks, and only then the old ones are freed. So a task that
is tried again, and a pass that runs again, read what the first attempt read, and no gradient counts twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lotan.engines.action import free_java_objects
from lotan.engines.blocks.learned import RowsByPlace
from lotan.engines.blocks.pipe import numbered

Forced = Callable[[Callable[[], None], str], None]
"""A function that runs an action of Spark with a description, and perhaps repeats it."""


class TrainedRows:
    """The learned rows of one run, by the names of their parameters.

    Args:
        facade: The Scala object in the session's JVM.
        blocks: The loaded graph in Spark.
        by_place: The way of rows between this process and their vertices.
        forced: The function that runs actions.
    """

    def __init__(self, facade: Any, blocks: Any, by_place: RowsByPlace, forced: Forced) -> None:
        self._facade, self._blocks, self._by_place, self._forced = facade, blocks, by_place, forced
        self._kept: dict[str, Any] = {}  # RDDs of the rows of a partition and their state
        self._best: dict[str, Any] = {}  # the same of the rows of the best epoch, without a state
        self._gradients: dict[str, Any] = {}  # the same of gradients that no step has used yet
        self._shapes: dict[str, torch.Size] = {}  # of the parameters
        self._parts: dict[str, int] = {}  # the number of parts of a state

    def __contains__(self, name: str) -> bool:
        return name in self._kept

    def put(self, name: str, rows: Tensor, state: Sequence[Tensor | float], best: Tensor | None = None) -> None:
        """Send the rows of a parameter to their vertices.

        Args:
            name: The parameter.
            rows: The rows of the parameter, in the order of ids. [vertices, ...].
            state: The parts of their state: rows too, or a number that all have.
            best: The rows of the best epoch so far; None: there is none.
        """
        self._shapes[name], self._parts[name] = rows.shape, len(state)
        found = self._sent(rows)
        parts = [self._sent(one) if isinstance(one, Tensor) else self._facade.filledRows(found, one) for one in state]
        self._kept[name] = self._settled(self._facade.rowsWithState(found, parts), "sending learned rows")
        if best is not None:
            made = self._facade.rowsWithState(self._sent(best), [])
            self._best[name] = self._settled(made, "sending the best learned rows")
        free_java_objects()  # until then, the JVM of this process holds what was sent

    def _sent(self, rows: Tensor) -> Any:
        found: list[Any] = []

        def send() -> None:
            found[:] = [self._by_place.column(rows.detach().reshape(len(rows), -1).numpy())]

        self._forced(send, "sending learned rows")  # the first one reads where vertices are
        return found[0]

    def _settled(self, made: Any, said: str) -> Any:
        """Compute rows, which Spark keeps without the lineage that they came by."""
        self._facade.keep(made)
        self._forced(lambda: self._facade.force([made]), said)
        return made

    def column(self, name: str, within: int | None) -> Any:
        """Return the rows of a parameter up to a level, as a column."""
        return self._facade.partOfRows(self._blocks, self._kept[name], 0, numbered(within))

    def take(self, name: str, gradient: Any) -> Any:
        """Take the gradient of a parameter, in place of one that was not used. Return what the pass has to compute for it."""
        self._free(self._gradients.pop(name, None))
        made = self._gradients[name] = self._facade.rowsWithState(gradient, [])
        self._facade.keep(made)
        return made

    def norm(self, name: str) -> float | None:
        """Return the norm of the gradient of a parameter; None if there is no gradient."""
        gradient, found = self._gradients.get(name), [0.0]
        if gradient is None:
            return None

        def compute() -> None:
            found[:] = [self._facade.squares(gradient)]

        self._forced(compute, "the norm of a gradient of learned rows")
        return float(found[0] ** 0.5)

    def update(self, name: str, optimizer: str, numbers: Mapping[str, float]) -> bool:
        """Take the step of an optimizer, see `lotan.settings.row_steps`. Return False if the parameter has no gradient."""
        gradient = self._gradients.get(name)
        if gradient is None:
            return False
        before = self._kept[name]
        made = self._facade.updateRows(before, gradient, optimizer, dict(numbers))
        self._kept[name] = self._settled(made, "updating learned rows")
        self._free(before)
        self._free(self._gradients.pop(name))
        return True

    def hold_best(self) -> None:
        """Keep the rows as they are, as those of the best epoch."""
        for name in self._kept:
            made = self._facade.rowsWithState(self.column(name, None), [])
            before, self._best[name] = self._best.get(name), self._settled(made, "keeping the best learned rows")
            self._free(before)

    def rows(self, name: str) -> Tensor:
        """Bring the rows of a parameter to this process."""
        return self._brought(name, self._kept[name], range(1))[0]

    def state(self, name: str) -> list[Tensor]:
        """Bring the parts of the state of a parameter's rows to this process, each of the parameter's shape."""
        return self._brought(name, self._kept[name], range(1, 1 + self._parts[name]))

    def best(self, name: str) -> Tensor | None:
        """Bring the best rows of a parameter to this process; None if no epoch was the best yet."""
        return self._brought(name, self._best[name], range(1))[0] if name in self._best else None

    def _brought(self, name: str, kept: Any, places: Sequence[int]) -> list[Tensor]:
        shape, found = self._shapes[name], dict[int, Tensor]()

        def bring() -> None:
            for place in places:
                column = self._facade.partOfRows(self._blocks, kept, place, numbered(None))
                found[place] = torch.from_numpy(self._by_place.rows(column, shape[1:].numel())).view(shape)

        self._forced(bring, "bringing learned rows to the trainer")
        return list(found.values())

    def _free(self, kept: Any) -> None:
        if kept is not None:
            self._facade.release(kept)

    def close(self) -> None:
        """Free all rows. This may be called twice."""
        for held in (self._kept, self._best, self._gradients):
            while held:
                self._free(held.popitem()[1])
