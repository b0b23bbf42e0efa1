"""Runs of stages in one mode or another, with the random numbers that all tests of stages draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from lotan.stages.chunk import Chunk, Saved
from lotan.stages.pieces import Pieces
from lotan.stages.programs import Program
from lotan.stages.randomness import Randomness
from lotan.stages.stage_run import StageResult, StageRun

DRAWS = Randomness(seed=1, epoch=2)

Tensors = Mapping[str, torch.Tensor]
Body = Program | Pieces


def forward(
    body: Body, chunk: Chunk, parameters: Tensors, keep: bool = False, **more: Any
) -> tuple[Tensors, Saved | None]:
    found = body.run(StageRun("forward", chunk, parameters, DRAWS, keep=keep, **more))
    return found.outputs, found.saved


def backward(
    body: Body, chunk: Chunk, parameters: Tensors, gradients: Tensors, saved: Saved | None = None, **more: Any
) -> StageResult:
    return body.run(StageRun("backward", chunk, parameters, DRAWS, gradients, saved=saved, **more))


def turn(body: Body, chunk: Chunk, parameters: Tensors) -> tuple[np.ndarray, StageResult]:
    found = body.run(StageRun("turn", chunk, parameters, DRAWS))
    return found.statistics, found


def evaluate(body: Body, chunk: Chunk, parameters: Tensors) -> np.ndarray:
    return body.run(StageRun("evaluate", chunk, parameters)).statistics


def predict(body: Body, chunk: Chunk, parameters: Tensors) -> Tensors:
    return body.run(StageRun("predict", chunk, parameters)).outputs
