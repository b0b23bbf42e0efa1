"""What can go wrong, as types. Every message says what was given, what was expected and what to do.

What the planner and the messenger raise becomes a `LotanError` in `lotan.borders`: both rooms know nothing of this one.
"""

from __future__ import annotations


class LotanError(Exception):
    """The root of this package's errors."""


class ConfigurationError(LotanError):
    """An option, argument or setting that cannot be used as given."""


class GraphError(LotanError):
    """A graph that cannot be trained on as it is; names the table, the column and an example row."""


class ModelError(LotanError):
    """A model that cannot be traced or is not supported; names the layer and the line."""


class EngineError(LotanError):
    """A failure while an engine or worker ran; names the stage and the partition."""


class PassLostError(EngineError):
    """A walk over a plan that could not be finished, but may be from its beginning: an executor that took rows with it."""


class DivergedError(EngineError):
    """Numbers of training are no longer finite; names the epoch."""


class StageError(EngineError):
    """A stage, or a chunk for it, that cannot be run: names the stage and the call or value at fault."""
