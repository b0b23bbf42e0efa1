"""The Params that estimators and their models share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasFeaturesCol, HasLabelCol, HasPredictionCol

from lotan.errors import ConfigurationError
from lotan.settings.class_weights import read_weights
from lotan.settings.config import TrainerConfig, make_config
from lotan.settings.regimes import FullBatch, MiniBatch, Regime, read_fanouts

Owner = TypeVar("Owner", bound=type)

OF_ONE_MODEL = (
    *("modelType", "hiddenChannels", "numLayers", "dropout", "heads", "optimizer", "lr", "weightDecay"),
    *("lrScheduler", "clipGradNorm", "epochs", "patience", "seed"),
)
"""The Params that may differ between models of one batch. Maps that differ in other Params make several batches."""


def make_param(name: str, doc: str, convert: Callable[[Any], Any]) -> Param[Any]:
    """Return a Param, which must be assigned to a class attribute of the same name."""
    return Param(Params._dummy(), name, doc, typeConverter=convert)


def accessors(owner: Owner) -> Owner:
    """Add a getter and a setter to a class for each of its Params, with Spark ML's names: `getLr()`, `setLr(0.1)`."""
    for name in dir(owner):
        param = getattr(owner, name)
        if isinstance(param, Param):
            for access in (_getter, _setter):
                made = access(name, param.doc)
                made.__qualname__ = f"{owner.__name__}.{made.__name__}"
                if not hasattr(owner, made.__name__):
                    setattr(owner, made.__name__, made)
    return owner


def _getter(name: str, doc: str) -> Callable[..., Any]:
    def get(self: Params) -> Any:
        return self.getOrDefault(name)

    get.__name__ = f"get{name[0].upper()}{name[1:]}"
    get.__doc__ = f"The value of `{name}` or its default: {doc}"
    return get


def _setter(name: str, doc: str) -> Callable[..., Any]:
    def set_value(self: Params, value: Any) -> Any:
        return self._set(**{name: value})

    set_value.__name__ = f"set{name[0].upper()}{name[1:]}"
    set_value.__doc__ = f"Set `{name}`: {doc}"
    return set_value


@accessors
class GraphParams(HasFeaturesCol):
    """The Params that all estimators and models have: columns of the graph, model, training and memory.

    A model has the Params with which it was trained. Each Param has a getter and a setter and is a keyword argument of
    the estimators. `explainParams()` lists them.
    """

    idCol = make_param("idCol", "the vertices' ids, integers or strings", TypeConverters.toString)
    srcCol = make_param("srcCol", "the ids of the edges' sources", TypeConverters.toString)
    dstCol = make_param("dstCol", "the ids of the edges' destinations", TypeConverters.toString)
    edgeWeightCol = make_param("edgeWeightCol", "the edges' weights; unset: 1", TypeConverters.toString)
    undirected = make_param("undirected", "true to add the reverse of every edge once", TypeConverters.toBoolean)
    edges = make_param("edges", "a table or view of edges, by name; or see setEdges", TypeConverters.toString)
    vertices = make_param(
        "vertices", "a table or view of all vertices, by name; or see setVertices", TypeConverters.toString
    )

    modelType = make_param(
        "modelType", "gcn, sage, gin, gat, mlp, or MODULE:FACTORY of your own", TypeConverters.toString
    )
    hiddenChannels = make_param("hiddenChannels", "width of the hidden layers", TypeConverters.toInt)
    numLayers = make_param("numLayers", "number of layers", TypeConverters.toInt)
    dropout = make_param("dropout", "probability with which a value is dropped in training", TypeConverters.toFloat)
    heads = make_param("heads", "number of attention heads, for gat or a factory of your own", TypeConverters.toInt)

    optimizer = make_param("optimizer", "an optimizer of torch's, such as adam or rmsprop", TypeConverters.toString)
    lr = make_param("lr", "learning rate", TypeConverters.toFloat)
    weightDecay = make_param("weightDecay", "weight decay of all parameters", TypeConverters.toFloat)
    lrScheduler = make_param(
        "lrScheduler", 'a scheduler of torch\'s, such as "StepLR(step_size=30)"; unset: none', TypeConverters.toString
    )
    clipGradNorm = make_param("clipGradNorm", "largest norm of all gradients; unset: any", TypeConverters.toFloat)
    epochs = make_param("epochs", "the most epochs", TypeConverters.toInt)
    patience = make_param(
        "patience", "evaluations without improvement on 'val' after which to stop", TypeConverters.toInt
    )
    seed = make_param("seed", "seed of initial weights and dropout", TypeConverters.toInt)
    evalEvery = make_param("evalEvery", "epochs between evaluations; 0: at the end only", TypeConverters.toInt)
    monitor = make_param(
        "monitor", "metric on 'val' that picks the best epoch; unset: the task's", TypeConverters.toString
    )

    batchSize = make_param(
        "batchSize",
        "targets of a mini-batch, on engine local or blocks; unset: an epoch is one pass",
        TypeConverters.toInt,
    )
    fanouts = make_param(
        "fanouts",
        'the in-edges that are drawn for a vertex in each layer, such as "10,10" or "10,all"; "none" for no neighbours',
        TypeConverters.toString,
    )
    samplingSeed = make_param("samplingSeed", "seed of the mini-batches", TypeConverters.toInt)

    memoryLimit = make_param(
        "memoryLimit", 'memory of all processes on this host, such as "4g"', TypeConverters.toString
    )
    maxModels = make_param(
        "maxModels", "number of models that train at a time; unset: as many as fit in memory", TypeConverters.toInt
    )
    progress = make_param("progress", "true to write a line for each epoch on standard error", TypeConverters.toBoolean)

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(idCol="id", srcCol="src", dstCol="dst", undirected=False)
        self._setDefault(modelType="gcn", hiddenChannels=64, numLayers=2, dropout=0.5, heads=1)
        self._setDefault(optimizer="adam", lr=0.01, weightDecay=5e-4, epochs=200, seed=0, evalEvery=1)
        self._setDefault(samplingSeed=0, progress=False)

    def setParams(self, **params: Any) -> Self:
        """Set several Params by name.

        Raises:
            ConfigurationError: a Param is unknown.
        """
        unknown = [name for name in params if not self.hasParam(name)]
        if unknown:
            known = ", ".join(param.name for param in self.params)
            raise ConfigurationError(f"{type(self).__name__} has no Param {', '.join(unknown)}; there are {known}")
        return self._set(**{name: value for name, value in params.items() if value is not None})

    def value(self, name: str) -> Any:
        """Return the value of a Param, or None if it has none."""
        return self.getOrDefault(name) if self.isDefined(name) else None

    def key(self, without: tuple[str, ...] = ()) -> tuple[Any, ...]:
        """Return the values of all Params except those in `without`, in a form that can be compared."""
        return tuple(repr(self.value(param.name)) for param in self.params if param.name not in without)

    def regime(self) -> Regime:
        """Return the regime that the Params describe.

        Raises:
            ConfigurationError: one of batchSize and fanouts is missing, or cannot be used.
        """
        size, fanouts = self.value("batchSize"), self.value("fanouts")
        if size is None and fanouts is None:
            return FullBatch()
        if size is None or fanouts is None:
            missing, given = ("batchSize", "fanouts") if size is None else ("fanouts", "batchSize")
            raise ConfigurationError(f"{given} is set, and mini-batches need {missing} too: set both, or neither")
        return MiniBatch(size, read_fanouts(fanouts), self.value("samplingSeed"))

    def options(self) -> dict[str, Any]:
        """Return the settings that are no single model's own, as the Trainer and a batch of models take them."""
        named = {"eval_every": "evalEvery", "memory_limit": "memoryLimit", "monitor": "monitor", "progress": "progress"}
        return {option: self.value(name) for option, name in named.items()} | {"regime": self.regime()}

    def config(self) -> TrainerConfig:
        """Return the options as a TrainerConfig, which checks them.

        Raises:
            ConfigurationError: an option cannot be used.
        """
        for name in ("numClasses", "maxModels"):
            count = self.value(name) if self.hasParam(name) else None
            if count is not None and count < 1:
                raise ConfigurationError(f"{name} is {count}; expected at least 1, or leave it unset")
        return make_config(self.options())


@accessors
class GNNParams(GraphParams, HasLabelCol, HasPredictionCol):
    """The Params of estimators and models of labels: those of `GraphParams`, and those of the dataset, loss and engine."""

    splitCol = make_param(
        "splitCol",
        "'train', 'val', 'test' or null for each row of the dataset; unset: all rows with a label are trained on",
        TypeConverters.toString,
    )
    weightCol = make_param(
        "weightCol", "the weights in the loss of the dataset's rows; unset: 1", TypeConverters.toString
    )

    edgeFeaturesCol = make_param(
        "edgeFeaturesCol",
        "attributes of the edges, an array or vector of numbers; unset: none",
        TypeConverters.toString,
    )
    edgeTypeCol = make_param("edgeTypeCol", "types of the edges, from 0; unset: none", TypeConverters.toString)

    loss = make_param(
        "loss", 'a loss such as "cross_entropy(label_smoothing=0.1)"; unset: the task\'s', TypeConverters.toString
    )
    engine = make_param("engine", "auto, local, blocks or rows", TypeConverters.toString)
    plan = make_param("plan", "auto or general", TypeConverters.toString)
    partitions = make_param("partitions", "number of partitions of the graph in Spark", TypeConverters.toInt)
    workers = make_param("workers", "number of DL worker processes to start", TypeConverters.toInt)

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(engine="auto", plan="auto")

    def check_outputs(self) -> None:
        """Check that the columns which are added to a dataset have different names.

        Raises:
            ConfigurationError: two columns have the same name. The error names both Params.
        """
        params: dict[str, str] = {}  # by the name of their column
        for param in ("predictionCol", "probabilityCol", "rawPredictionCol"):
            column = self.value(param) if self.hasParam(param) else ""
            if column and params.setdefault(column, param) != param:
                raise ConfigurationError(f"{params[column]} and {param} are both {column!r}; give them different names")

    def options(self) -> dict[str, Any]:
        """Return the settings of the loss, the engine and the evaluation, as the Trainer and a batch of models take them."""
        same = ("engine", "plan", "partitions", "workers")
        weights = self.value("classWeights") if self.hasParam("classWeights") else None
        of_loss = {"loss": self.value("loss"), "class_weights": None if weights is None else read_weights(weights)}
        return {**super().options(), **of_loss, **{name: self.value(name) for name in same}}
