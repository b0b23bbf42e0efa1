"""The writers and readers of estimators and models. As in Spark ML, metadata are JSON and data are Parquet."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReader, MLWriter
from pyspark.sql import SparkSession

from lotan.borders import first_line, spark_translated
from lotan.errors import ModelError
from lotan.results.trained_model import IDS, SPEC, WEIGHTS, load
from lotan.version import __version__

if TYPE_CHECKING:
    from lotan.ml.grid_estimator import GridEstimator
    from lotan.ml.held_model import HeldModel
    from lotan.results.trained_model import TrainedModel

FORMAT = 1
DATA = "data"
FILES = (SPEC, WEIGHTS, IDS)
_ENTRY = "lotan"


class EstimatorWriter(MLWriter):
    """Writes the Params of an estimator."""

    def __init__(self, instance: GridEstimator[Any]) -> None:
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:
        """Write the Params to the folder `path`."""
        _write_metadata(self._instance, path, self.sparkSession)


class EstimatorReader(MLReader[Any]):
    """Reads an estimator that `EstimatorWriter` wrote."""

    def __init__(self, kind: type[GridEstimator[Any]]) -> None:
        super().__init__()
        self._kind = kind

    def load(self, path: str) -> Any:
        """Read an estimator.

        Raises:
            ModelError: there is no estimator, or it was saved in another format.
        """
        return _read_params(self._kind, path, self.sparkSession)


class ModelWriter(MLWriter):
    """Writes the Params, operators and weights of a model."""

    def __init__(self, instance: HeldModel) -> None:
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:
        """Write the model to the folder `path`."""
        trained = self._instance.trained
        _write_metadata(self._instance, path, self.sparkSession)
        with TemporaryDirectory(prefix="lotan-") as folder:
            trained.save(folder)
            there = [Path(folder) / name for name in FILES if (Path(folder) / name).is_file()]
            files = [(file.name, bytearray(file.read_bytes())) for file in there]
        frame = self.sparkSession.createDataFrame(files, "name string, content binary")
        frame.coalesce(1).write.parquet(f"{path}/{DATA}")


class ModelReader(MLReader[Any]):
    """Reads a model that `ModelWriter` wrote."""

    def __init__(self, kind: type[HeldModel]) -> None:
        super().__init__()
        self._kind = kind

    def load(self, path: str) -> Any:
        """Read a model. Its graph must be given again, unless Params name its tables.

        Raises:
            ModelError: there is no model, it was saved in another format, or it is damaged.
        """
        model = _read_params(self._kind, path, self.sparkSession)
        model._trained = _read_model(path, self.sparkSession)
        return model


@spark_translated(ModelError, "the model cannot be saved")
def _write_metadata(instance: Any, path: str, spark: SparkSession) -> None:
    entry = {_ENTRY: {"format": FORMAT, "version": __version__}}
    DefaultParamsWriter.saveMetadata(instance, path, spark, extraMetadata=entry)


def _read_params(kind: type[Any], path: str, spark: SparkSession) -> Any:
    try:
        return _read_metadata(kind, path, spark)
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # the JSON, or a value in it, is wrong
        raise ModelError(
            f"{path} cannot be read: its metadata are damaged ({type(error).__name__}: {first_line(error)}). Copy it anew, "
            "or save it again"
        ) from error


@spark_translated(ModelError, "the model cannot be read")
def _read_metadata(kind: type[Any], path: str, spark: SparkSession) -> Any:
    metadata = DefaultParamsReader.loadMetadata(path, spark)
    name = f"{kind.__module__}.{kind.__name__}"
    if metadata["class"] != name:
        raise ModelError(f"{path} holds a {metadata['class']}, no {name}: load it as what it is")
    saved = metadata.get(_ENTRY, {})
    if saved.get("format") != FORMAT:
        raise ModelError(
            f"{path} was saved by lotan {saved.get('version')} in format {saved.get('format')}; this is lotan "
            f"{__version__}, which reads format {FORMAT}. Load it with that version, or train again"
        )
    instance = kind()
    instance._resetUid(metadata["uid"])
    DefaultParamsReader.getAndSetParams(instance, metadata)
    return instance


@spark_translated(ModelError, "the model cannot be read")
def _read_model(path: str, spark: SparkSession) -> TrainedModel:
    with TemporaryDirectory(prefix="lotan-") as folder:
        for row in spark.read.parquet(f"{path}/{DATA}").collect():
            if row.name in FILES:
                (Path(folder) / row.name).write_bytes(row.content)
        return load(folder)
