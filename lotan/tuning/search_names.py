"""The searches there are, by name; apart, so that `lotan tune --help` need not import what runs them."""

from __future__ import annotations

from typing import Literal, get_args

SearchName = Literal["grid", "random", "halving", "optuna"]
SEARCHES: tuple[SearchName, ...] = get_args(SearchName)
