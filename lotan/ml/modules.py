"""From Params to what is trained: a module with its first weights, and its optimizer."""

from __future__ import annotations

import torch

from lotan.ml.params import GNNParams
from lotan.nn.named_models import OWN, STOCK, Factory, factory_of, made
from lotan.settings.optimizers import Optimizer, optimizer_by_name


def make_module(params: GNNParams, factory: Factory | None, in_channels: int, out_channels: int) -> torch.nn.Module:
    """The model that the Params ask for; its weights are drawn with their seed.

    Args:
        params: which model, how wide and deep.
        factory: of a model of one's own; None: the one that `modelType` names.
        in_channels: width of the features.
        out_channels: classes, or 1.

    Raises:
        ConfigurationError: an unknown model, or arguments that it refuses.
        ModelError: the factory fails, or returns something else than a module.
    """
    kind = params.value("modelType")
    arguments = {
        "in_channels": in_channels,
        "hidden_channels": params.value("hiddenChannels"),
        "num_layers": params.value("numLayers"),
        "out_channels": out_channels,
        "dropout": params.value("dropout"),
    }
    if factory is not None or kind not in STOCK or kind in OWN["heads"]:
        arguments["heads"] = params.value("heads")
    return made(factory or factory_of(kind, "modelType"), arguments, params.value("seed"), "the model's factory")


def make_optimizer(params: GNNParams) -> Optimizer:
    """The optimizer that the Params ask for.

    Raises:
        ConfigurationError: an unknown one, or arguments that it refuses.
    """
    return optimizer_by_name(params.value("optimizer"), lr=params.value("lr"), weight_decay=params.value("weightDecay"))
