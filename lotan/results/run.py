"""A finished training run, as `Trainer.fit` returns it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lotan.graph.graph import Graph
from lotan.results.report import write_report
from lotan.results.trained_model import TrainedModel
from lotan.settings.config import TrainerConfig

if TYPE_CHECKING:
    import pandas as pd

    from lotan.results.vertex_explanation import VertexExplanation


@dataclass(frozen=True, repr=False)
class Run:
    """A finished run: its history, metrics, report and trained model. The user's model holds the best weights too."""

    history: list[dict[str, Any]]  # one entry per epoch, as in the report
    metrics: dict[str, dict[str, float]]  # the metrics of the best epoch, by split and name
    best_epoch: int
    report: dict[str, Any]  # plain data for JSON, see lotan.results.report
    model: TrainedModel  # with the best weights
    graph: Graph = field(repr=False)
    config: TrainerConfig = field(repr=False)

    def __repr__(self) -> str:
        """Describe the run in a few lines: its epochs, its best epoch, and the metrics of that epoch."""
        engine = self.report.get("engine", "")
        lines = [
            f"Run of {len(self.history):,} epochs{f' on {engine}' if engine else ''}, best in epoch {self.best_epoch}"
        ]
        for split, figures in self.metrics.items():
            lines.append(f"{split:<6}" + "  ".join(f"{name} {value:.4f}" for name, value in figures.items()))
        return "\n  ".join(lines)

    def predict(self) -> Any:
        """Return a DataFrame of `id`, `prediction` and `probability` for every vertex, see `TrainedModel.predict`."""
        return self.model.predict_as(self.graph, self.config)

    def predict_links(self, pairs: Any) -> Any:
        """Return pairs of vertices of the graph that was trained on with their scores, see `TrainedModel.predict_links`."""
        return self.model.predict_links(self.graph, pairs, **self._options())

    def rank(self, queries: Any, k: int = 10, exclude_known: bool = False) -> pd.DataFrame:
        """Return the best destinations of sources in the graph that was trained on, see `TrainedModel.rank`."""
        return self.model.rank(self.graph, queries, k, exclude_known, **self._options())

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self.config, name) for name in ("engine", "chunk_rows", "memory_limit")}

    def explain_vertex(self, vertex: int | str, **options: Any) -> VertexExplanation:
        """Explain an output of a vertex of the graph that was trained on, see `TrainedModel.explain_vertex`."""
        return self.model.explain_vertex(self.graph, vertex, **options)

    def write_report(self, path: str | Path) -> None:
        """Write the report as a JSON file."""
        write_report(path, self.report)

    def save(self, directory: str | Path, overwrite: bool = False) -> None:
        """Write the model to a directory, for `lotan.load` and `lotan predict`.

        Args:
            directory: The directory.
            overwrite: True to replace a saved model that is there.

        Raises:
            ModelError: A saved model is there and `overwrite` is False, the directory has a saved graph, or it is a file.
        """
        self.model.save(directory, overwrite)
