"""The types of errors. Every message says what was given, what was expected and what to do.

Errors of the planner and the messenger become a `LotanError` in `lotan.borders`, because both packages do not know this one.
"""

from __future__ import annotations


class LotanError(Exception):
    """The base class of all errors of this package."""


class ConfigurationError(LotanError):
    """An option, argument or setting that cannot be used as given."""


class GraphError(LotanError):
    """A graph that cannot be trained on as it is. The message names the table, the column and an example row."""


class ModelError(LotanError):
    """A model that cannot be traced or is not supported. The message names the layer and the line."""


class EngineError(LotanError):
    """A failure of a running engine or worker. The message names the stage and the partition."""


class PassLostError(EngineError):
    """A pass that could not be finished, because an executor was lost with its rows. Running the pass again may succeed."""


class StorageError(LotanError):
    """Files of partitioned storage that cannot be written, read or used. The message names the folder and what to do."""


class DivergedError(EngineError):
    """Numbers of training that are no longer finite. The message names the epoch."""


class StageError(EngineError):
    """A stage, or a chunk for it, that cannot be run. The message names the call or the value at fault."""
