"""Lotan: exact GNN training on graphs that live in Spark tables, treated as a query plan.

    graph = lotan.Graph.read("digits")
    model = lotan.nn.GCN(in_channels=64, hidden_channels=64, num_layers=2, out_channels=10)
    run = lotan.Trainer(model, graph, optimizer=lotan.Adam(lr=0.01), epochs=100).fit()

The names listed here are public. Each is imported at first use, so that `import lotan` and `lotan --help` load neither
torch nor Spark. For the same reason some functions import the modules that only they need: the commands in `lotan.cli`,
and functions that serve Spark alone in `engines`, `graph`, `memory` and `validation`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lotan.errors import ConfigurationError, EngineError, GraphError, LotanError, ModelError, StorageError
from lotan.rooms import check_rooms
from lotan.version import __version__

check_rooms()  # before the first import of either package, because this error message is the better one

if TYPE_CHECKING:
    from lotan import datasets, ml, nn
    from lotan.batch.members import Member
    from lotan.batch.model_batch import ModelBatch
    from lotan.borders import MessengerError, PlanError
    from lotan.graph.graph import Graph
    from lotan.graph.hetero_graph import HeteroGraph
    from lotan.results.smoothing import CorrectAndSmooth, LabelPropagation
    from lotan.results.trained_model import TrainedModel, load
    from lotan.settings.config import TrainerConfig
    from lotan.settings.optimizers import (
        ASGD,
        SGD,
        Adadelta,
        Adagrad,
        Adam,
        Adamax,
        AdamW,
        NAdam,
        RAdam,
        RMSprop,
        Rprop,
    )
    from lotan.settings.regimes import FullBatch, MiniBatch
    from lotan.settings.tasks import LinkPrediction
    from lotan.training.persisted_graph import persisted
    from lotan.training.trainer import Trainer
    from lotan.tuning.compare import Compared, compare
    from lotan.tuning.result import Tuned
    from lotan.tuning.tuner import tune

__all__ = [
    "ASGD",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Compared",
    "ConfigurationError",
    "CorrectAndSmooth",
    "EngineError",
    "FullBatch",
    "Graph",
    "GraphError",
    "HeteroGraph",
    "LabelPropagation",
    "LinkPrediction",
    "LotanError",
    "Member",
    "MessengerError",
    "MiniBatch",
    "ModelBatch",
    "ModelError",
    "NAdam",
    "PlanError",
    "RAdam",
    "RMSprop",
    "Rprop",
    "StorageError",
    "TrainedModel",
    "Trainer",
    "TrainerConfig",
    "Tuned",
    "__version__",
    "compare",
    "datasets",
    "load",
    "ml",
    "nn",
    "persisted",
    "tune",
]

_MODULES = {"datasets", "ml", "nn"}
_OPTIMIZERS = (
    *("Adam", "AdamW", "SGD", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam"),
    *("RMSprop", "Rprop", "ASGD"),
)
_PLACES = {
    "Graph": "lotan.graph.graph",
    "HeteroGraph": "lotan.graph.hetero_graph",
    "Trainer": "lotan.training.trainer",
    "TrainerConfig": "lotan.settings.config",
    "Member": "lotan.batch.members",
    "ModelBatch": "lotan.batch.model_batch",
    "persisted": "lotan.training.persisted_graph",
    **dict.fromkeys(("FullBatch", "MiniBatch"), "lotan.settings.regimes"),
    "LinkPrediction": "lotan.settings.tasks",
    **dict.fromkeys(("MessengerError", "PlanError"), "lotan.borders"),
    **dict.fromkeys(("CorrectAndSmooth", "LabelPropagation"), "lotan.results.smoothing"),
    **dict.fromkeys(("TrainedModel", "load"), "lotan.results.trained_model"),
    **dict.fromkeys(("Compared", "compare"), "lotan.tuning.compare"),
    "Tuned": "lotan.tuning.result",
    "tune": "lotan.tuning.tuner",
    **dict.fromkeys(_OPTIMIZERS, "lotan.settings.optimizers"),
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562)."""
    if name in _MODULES:
        return import_module(f"lotan.{name}")
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'lotan' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return all public names, imported or not."""
    return sorted({*globals(), *__all__})
