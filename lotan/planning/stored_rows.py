"""Learned rows that lie in partitions on a disk: the modules that have them, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch

from lotan.errors import ModelError
from lotan.graph.arrays import Ids
from lotan.nn.learned_features import LearnedFeatures
from lotan.planning.learned import check_ids
from lotan.settings.config import TrainerConfig
from lotan.settings.regimes import MiniBatch
from lotan.settings.row_wise import ROW_STATES, check_row_wise
from planner.spec import Spec


def learned_modules(model: torch.nn.Module, required: bool = False) -> dict[str, LearnedFeatures]:
    """Return the modules of learned rows by name.

    Args:
        model: The model.
        required: True if there must be some.

    Raises:
        ModelError: If there is none and some are required, or one is not trained.
    """
    found = {name: one for name, one in model.named_modules() if isinstance(one, LearnedFeatures)}
    if required and not found:
        raise ModelError(
            "the model has no learned rows and reads no neighbours, and training from a disk keeps rows, or features of "
            "neighbours, there; take lotan.nn.LearnedRows(64), a model with layers and fanouts, or leave the regime's order out"
        )
    frozen = [name for name, module in found.items() if not module.weight.requires_grad]
    if frozen:
        raise ModelError(
            f"{frozen[0]}.weight is not trained (requires_grad is False), and training from a disk is for rows that are; leave "
            "the regime's order out"
        )
    return found


def row_widths(modules: Mapping[str, LearnedFeatures]) -> dict[str, int]:
    """Return the numbers in a row of each parameter that has a row for each vertex, by the parameter's name."""
    return {f"{name}.weight" if name else "weight": module.width for name, module in modules.items()}


def storage_place(config: TrainerConfig) -> Path | None:
    """Return the folder of the partitions: the one that was given, or one in the folder of checkpoints; None: a temporary one."""
    folder = config.storage_dir
    if folder is None and config.checkpoint_dir is not None:
        folder = Path(config.checkpoint_dir) / "storage"
    return None if folder is None else Path(folder).expanduser()


def states_of_rows(config: TrainerConfig) -> int:
    """Return the numbers that the optimizer keeps for each number of a row."""
    return len(ROW_STATES.get(type(config.optimizer).__name__, ()))


@contextmanager
def as_if_drawn(modules: Mapping[str, LearnedFeatures], ids: Ids) -> Iterator[None]:
    """Give modules rows in the shape of those on the disk, which take no memory, until the block ends.

    Args:
        modules: The modules by name.
        ids: The ids of the graph's vertices, ascending.

    Raises:
        GraphError: If a module has the rows of other vertices.
    """
    before = {name: module.weight for name, module in modules.items()}
    for name, module in modules.items():
        if module.has_rows:
            check_ids(f"{name}.weight", module.ids, len(module.weight), ids)
        else:
            shape = torch.zeros(1, 1).expand(len(ids), module.width)
            module.weight = torch.nn.Parameter(shape, requires_grad=module.weight.requires_grad)
    try:
        yield
    finally:
        for name, module in modules.items():
            module.weight = before[name]


def check_stored_rows(train: Spec, learned: Mapping[str, int], config: TrainerConfig) -> None:
    """Check that the rows that a model learns can lie on a disk, and that the optimizer has a form for them.

    Args:
        train: The traced model in training mode.
        learned: The parameters whose rows lie on the disk, by name.
        config: The settings of the run.

    Raises:
        ModelError: If the model learns rows in another form.
        ConfigurationError: If the optimizer has no form for rows.
    """
    regime, more = config.regime, sorted(set(train.learned) - set(learned))
    assert isinstance(regime, MiniBatch)
    if more:
        raise ModelError(
            f"order {regime.order!r} keeps rows of lotan.nn.LearnedFeatures on a disk, and the model learns {', '.join(more)} "
            "too; use LearnedFeatures in their place"
        )
    for parameter in learned:  # the optimizer's arguments are checked with the groups of parameters
        check_row_wise(type(config.optimizer).__name__, parameter, {})
