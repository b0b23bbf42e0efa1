"""The names of the searches. They have a module of their own, so that `lotan tune --help` imports no search."""

from __future__ import annotations

from typing import Literal, get_args

SearchName = Literal["grid", "random", "halving", "optuna"]
SEARCHES: tuple[SearchName, ...] = get_args(SearchName)
