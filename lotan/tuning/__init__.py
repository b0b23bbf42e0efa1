"""Hyper-parameter search: the models of a grid, trained on one graph over shared passes.

The page docs/reference/grid-file.md lists the keys of a grid file.
"""

from lotan.tuning.config import TuneConfig
from lotan.tuning.grid_file import read_grid
from lotan.tuning.result import Trial, Tuned
from lotan.tuning.search_names import SEARCHES
from lotan.tuning.tuner import tune

__all__ = ["SEARCHES", "Trial", "TuneConfig", "Tuned", "read_grid", "tune"]
