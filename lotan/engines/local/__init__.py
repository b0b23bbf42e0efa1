"""The local engine: columns are torch tensors of this process."""

from lotan.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]
