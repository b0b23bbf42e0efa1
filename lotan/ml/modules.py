"""The functions that make a module, with its first weights, and its optimizer from Params."""

from __future__ import annotations

from typing import Any

import torch

from lotan.ml.params import GraphParams
from lotan.nn.named_models import OWN, STOCK, Factory, factory_of, made
from lotan.settings.optimizers import Optimizer, plain_optimizer


def make_module(params: GraphParams, factory: Factory | None, in_channels: int, out_channels: int) -> torch.nn.Module:
    """Return the model that the Params describe. Its weights are drawn with the Params' seed.

    Args:
        params: the Params.
        factory: a user's own factory, or None for the model that `modelType` names.
        in_channels: width of the features.
        out_channels: number of classes, or 1 for regression.

    Raises:
        ConfigurationError: the model is unknown, or refuses an argument.
        ModelError: the factory fails, or its result is no module.
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


def training_settings(params: GraphParams) -> dict[str, Any]:
    """Return the settings of one model's training that the Params describe, as keyword arguments of a Trainer or a Member.

    Raises:
        ConfigurationError: the optimizer is unknown, or refuses an argument.
    """
    return {
        "optimizer": make_optimizer(params),
        "lr_scheduler": params.value("lrScheduler"),
        "clip_grad_norm": params.value("clipGradNorm"),
        "seed": params.value("seed"),
        "epochs": params.value("epochs"),
        "patience": params.value("patience"),
    }


def make_optimizer(params: GraphParams) -> Optimizer:
    """Return the optimizer that the Params describe.

    Raises:
        ConfigurationError: the optimizer is unknown, or refuses an argument.
    """
    decay = params.value("weightDecay") if params.isSet("weightDecay") else None
    return plain_optimizer(params.value("optimizer"), params.value("lr"), decay)
