"""Hyper-parameter search: the models of a grid, trained on one graph over shared passes. docs/tune.md explains it."""

from lotan.search_names import SEARCHES
from lotan.tuning.config import TuneConfig
from lotan.tuning.grid_file import read_grid
from lotan.tuning.result import Trial, Tuned
from lotan.tuning.tuner import tune

__all__ = ["SEARCHES", "Trial", "TuneConfig", "Tuned", "read_grid", "tune"]
