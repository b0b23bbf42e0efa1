"""Facts about a graph: its sizes, degrees, groups and labels, and the loss that they make."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Self

import numpy as np

from lotan.graph.content import GraphContent
from lotan.graph.file_tables import open_table
from lotan.graph.groups import groups_of_table, numbers_of_groups
from lotan.graph.labels import (
    ClassWeights,
    LabelStatistics,
    class_counts,
    label_statistics,
    loss_spec,
    require_training_labels,
    weights_of,
    with_vertex_weights,
)
from planner.loss import LossForm, LossSpec, Task
from planner.statistics import Profile, Statistics


class GraphFacts(GraphContent):
    """The sizes and counts of a graph, each found when it is first asked for. `Graph` is the class that users make."""

    def vertices_of_type(self, number: int) -> int:
        """Return the number of vertices of a type, by the type's number. For a graph in Spark it takes a job.

        Args:
            number: the number of the type, in a graph that has several.
        """
        types = self.vertex_types
        assert types is not None, "the graph has several types of vertices"
        if self._source.tables is None:
            return int((self.arrays().features[:, types.type_column] == number).sum())
        from lotan.graph import frames

        return frames.vertices_of_type(self._tables[0], types.type_column, number)

    @cached_property
    def groups(self) -> int | None:
        """The number of groups of vertices, or None if the graph has no column `batch`. For a graph in Spark it takes a job.

        Raises:
            GraphError: a number of a group is missing, negative or no whole number, or a group is empty.
        """
        column = self._source.names.batch
        if column is None:
            return None
        if self._source.tables is not None:
            from lotan.graph import frames

            return frames.groups(self._tables[0], column)
        if self._source.files is not None:
            return groups_of_table(open_table(self._source.files.vertices), column).count(column)
        return numbers_of_groups([self.arrays().features[:, -1]]).count(column)

    @cached_property
    def statistics(self) -> Statistics:
        """The sizes that the Planner needs. For a graph in Spark they take two jobs, or three if vertices have types."""
        types = None if self.vertex_types is None else len(self.vertex_types.relations)
        if self._source.tables is None:
            found = replace(self.arrays().statistics, in_files=self.reads_in_parts)
            of_edges = self.arrays().edge_type
            if types is None or of_edges is None:
                return found
            return replace(found, relations=tuple(np.bincount(of_edges, minlength=types).tolist()))
        from lotan.graph import frames

        found = frames.statistics(self._tables, self.names, self.undirected)
        return found if types is None else replace(found, relations=frames.edges_by_type(self._tables[1], types))

    @cached_property
    def profile(self) -> Profile:
        """The degrees and the density on which costs depend. For a graph in Spark they take two jobs."""
        if self._source.tables is None:
            found = self.arrays().statistics.profile
            assert found is not None  # the statistics of arrays have a profile
            return found
        from lotan.graph import frames

        return frames.profile(self._tables, self.names, self.undirected)

    def with_statistics(self, statistics: Statistics) -> Self:
        """Return this graph with sizes that it does not find itself: its edges and features lie elsewhere."""
        self.__dict__["statistics"] = statistics
        return self

    def estimate(self) -> Statistics:
        """Return `statistics`, but for files an upper bound from their footers, which is known without reading rows."""
        if self._source.files is None:
            return self.statistics
        found = self._source.files.estimate(self._source.names, self.undirected)
        return replace(found, in_files=self.reads_in_parts)

    @cached_property
    def labels(self) -> LabelStatistics:
        """The task that the labels suggest, and counts of them.

        Raises:
            GraphError: labels are whole numbers that cannot be classes, such as ids.
        """
        if self._source.tables is None:
            return label_statistics(self.arrays()).checked()
        from lotan.graph import frames

        return frames.label_statistics(self._tables, self.names).checked()

    def loss_spec(
        self,
        task: Task | None,
        outputs: int,
        class_weights: ClassWeights | None = None,
        form: LossForm | None = None,
        metrics: tuple[str, ...] = (),
    ) -> LossSpec:
        """Return the loss over the training vertices, with torch's reduction="mean".

        Args:
            task: the task, or None for the one that the labels suggest.
            outputs: width of the model's output.
            class_weights: the argument `weight` of torch's loss: one number for each class, or for each label of a
                multi-label task; a mapping from classes to weights; or "balanced" (default: None, for equal weights).
            form: the loss, if it is not the task's own (default: None).
            metrics: further metrics to count for, see `lotan.settings.metric_names` (default: none).

        Raises:
            GraphError: no training vertex has a label.
            ConfigurationError: the class weights do not fit.
        """
        task = task or self.labels.task
        weights = counts = None
        if class_weights is not None:
            classes = LossSpec(task, outputs, 1.0).classes
            weights = weights_of(class_weights, task, classes, lambda: self.class_counts, self.labels.classes)
        require_training_labels(self.labels)
        if weights and task == "classification":
            counts = self.class_counts
        found = loss_spec(self.labels, task, outputs, weights, counts, form, metrics)
        return with_vertex_weights(found, self.training_weights) if self.has_vertex_weights else found

    @cached_property
    def class_counts(self) -> tuple[int, ...]:
        """The number of training vertices of each class, for labels that are classes."""
        if self._source.tables is None:
            return class_counts(self.arrays())
        from lotan.graph import frames

        return frames.class_counts(self._tables, self.names)
