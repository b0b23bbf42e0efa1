"""The Params of the link predictor and its models, and the link task and settings that they describe."""

from __future__ import annotations

from typing import Any

from pyspark.ml.param import TypeConverters

from lotan.errors import ConfigurationError
from lotan.ml.params import OF_ONE_MODEL, GraphParams, accessors, make_param
from lotan.settings.config import TrainerConfig
from lotan.settings.tasks import ALL, LinkPrediction

OF_ONE_LINK_MODEL = (
    *OF_ONE_MODEL,
    *("decoder", "negatives", "loss", "negativeSampling", "filtered", "excludeTargets", "taskSeed"),
    *("batchSize", "fanouts", "samplingSeed"),
)
"""The Params that may differ between models of one grid, which then share what they draw alike."""


def _count(value: Any) -> str:
    """Return a number of negatives as a text, or "all"."""
    return value if isinstance(value, str) else str(TypeConverters.toInt(value))


@accessors
class LinkParams(GraphParams):
    """The Params of links: those of `GraphParams`, and those of the dataset of links, the decoder and its negatives."""

    relationCol = make_param(
        "relationCol", "the links' relations, integers or strings; unset: there is one", TypeConverters.toString
    )
    splitCol = make_param(
        "splitCol",
        "'train', 'val', 'test' or null for each link of the dataset; unset: all are trained on",
        TypeConverters.toString,
    )
    labelCol = make_param(
        "labelCol",
        "numbers: a row of the dataset whose number is 0 or null is no link; unset: every row is one",
        TypeConverters.toString,
    )
    scoreCol = make_param("scoreCol", "the scores that transform adds", TypeConverters.toString)

    decoder = make_param("decoder", "dot, distmult, complex or transe", TypeConverters.toString)
    negatives = make_param("negatives", "vertices that are drawn against links at each end, or all", _count)
    loss = make_param("loss", "softmax or bce, of a link and its negatives", TypeConverters.toString)
    negativeSampling = make_param("negativeSampling", "uniform or degree", TypeConverters.toString)
    filtered = make_param(
        "filtered", "true to leave out negatives that make another training link", TypeConverters.toBoolean
    )
    excludeTargets = make_param(
        "excludeTargets",
        "true if no messages pass along the links of the batch; unset: true in mini-batches",
        TypeConverters.toBoolean,
    )
    taskSeed = make_param("taskSeed", "seed of the negatives", TypeConverters.toInt)
    engine = make_param("engine", "auto, local or blocks", TypeConverters.toString)
    partitions = make_param("partitions", "number of partitions of the graph on blocks", TypeConverters.toInt)
    workers = make_param("workers", "number of DL worker processes to start on blocks", TypeConverters.toInt)

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(scoreCol="score", decoder="dot", negatives="500", loss="softmax", negativeSampling="uniform")
        self._setDefault(filtered=False, taskSeed=0, engine="auto")

    def link_task(self) -> LinkPrediction:
        """Return the task that the Params describe.

        Raises:
            ConfigurationError: a Param cannot be used.
        """
        negatives = self.value("negatives")
        if negatives != ALL and not negatives.isdecimal():
            raise ConfigurationError(f"negatives is {negatives!r}; expected a whole number of at least 1, or 'all'")
        return LinkPrediction(
            decoder=self.value("decoder"),
            negatives=negatives if negatives == ALL else int(negatives),
            loss=self.value("loss"),
            negative_sampling=self.value("negativeSampling"),
            filtered=self.value("filtered"),
            exclude_targets=self.value("excludeTargets"),
            seed=self.value("taskSeed"),
        )

    def options(self) -> dict[str, Any]:
        """Return the settings of the task, the regime and the evaluation, as the Trainer and a batch of models take them."""
        return {**super().options(), **self._of_engine(), "task": self.link_task()}

    def _of_engine(self) -> dict[str, Any]:
        return {name: self.value(name) for name in ("engine", "partitions", "workers")}

    def predicting(self) -> TrainerConfig:
        """Return the settings with which a model computes the rows of vertices."""
        return TrainerConfig(**self._of_engine(), memory_limit=self.value("memoryLimit"))
