"""The rows engine: propagate, collect and pipe as Spark DataFrames.

This file imports nothing by itself: Spark's Python workers read it on their way to `pipe_task`, and should not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lotan.engines.rows.engine import RowsEngine, RowsSettings

__all__ = ["RowsEngine", "RowsSettings"]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562)."""
    if name in __all__:
        from lotan.engines.rows import engine

        return getattr(engine, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
