"""A stage run piece by piece comes to what it comes to in one go."""

from __future__ import annotations

import pytest
import torch

from lotan.stages.pieces import Pieces
from lotan.stages.program import StageProgram
from tests.stages.runs import backward, evaluate, forward, predict, turn
from tests.stages.test_flat import MODELS, drawn, stages_of

ROWS = 23  # in pieces of 5: four whole ones and a rest


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("keep", [True, False], ids=["kept", "run again"])
@pytest.mark.parametrize("name", ["GCN", "GCN, normalised", "GIN", "GraphSAGE, projected"])
def test_rows_and_gradients_are_those_of_the_whole(name: str, keep: bool, flat: bool) -> None:
    assert name in MODELS
    for stage in stages_of(name):
        program = StageProgram(stage, flat=flat)
        chunk, parameters, gradients = drawn(stage, ROWS)
        expected, saved = forward(program, chunk, parameters, keep)
        of_whole = backward(program, chunk, parameters, gradients, saved)
        pieces = Pieces(program, 5)
        outputs = {name: torch.full_like(value, torch.nan) for name, value in expected.items()}
        found, of_pieces = forward(pieces, chunk, parameters, keep, into=outputs)
        inputs = {name: torch.full_like(value, torch.nan) for name, value in of_whole.input_gradients.items()}
        in_all = backward(pieces, chunk, parameters, gradients, of_pieces, into=inputs)
        assert all(found[name] is place for name, place in outputs.items())
        assert all(in_all.input_gradients[name] is place for name, place in inputs.items())
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(dict(in_all.input_gradients), dict(of_whole.input_gradients), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(
            dict(in_all.parameter_gradients), dict(of_whole.parameter_gradients), rtol=1e-5, atol=1e-4
        )


def test_the_last_stage_turns_and_counts_as_a_whole() -> None:
    stage = next(stage for stage in stages_of("GCN") if stage.loss is not None and stage.name.startswith("train"))
    program = StageProgram(stage)
    chunk, parameters, _ = drawn(stage, ROWS)
    counted, expected = turn(program, chunk, parameters)
    pieces = Pieces(program, 5)
    ours, found = turn(pieces, chunk, parameters)
    torch.testing.assert_close(torch.from_numpy(ours), torch.from_numpy(counted))
    torch.testing.assert_close(dict(found.input_gradients), dict(expected.input_gradients))
    torch.testing.assert_close(dict(found.parameter_gradients), dict(expected.parameter_gradients))
    evaluated = torch.from_numpy(evaluate(pieces, chunk, parameters))
    torch.testing.assert_close(evaluated, torch.from_numpy(evaluate(program, chunk, parameters)))
    torch.testing.assert_close(predict(pieces, chunk, parameters), predict(program, chunk, parameters))
