"""A term of the loss that depends on parameters alone, against the loop that everyone writes in torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import lotan
from lotan.errors import ConfigurationError, DivergedError
from tests.training.test_trainer import Data, _fit, _losses, _pair, assert_same_checkpoint

NAMES = ("convs.0.lin.weight", "convs.1.bias")


def _penalty(parameters: Mapping[str, Tensor]) -> Tensor:
    return 0.3 * sum(parameters[name].square().sum() for name in NAMES) + 0.01 * parameters[NAMES[0]].abs().max()


def _curve(model: torch.nn.Module, data: Data, epochs: int) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows, label, losses = data.rows(0), torch.from_numpy(data.label), []
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = functional.cross_entropy(data.logits(model)[rows], label[rows]) + _penalty(
            dict(model.named_parameters())
        )
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_penalty_is_added_to_the_loss_and_to_gradients() -> None:
    data, (ours, theirs) = Data(), _pair()
    with torch.no_grad():
        for model in (ours, theirs):
            model.convs[1].bias.copy_(torch.linspace(-1, 1, 3))
    run = _fit(ours, data, epochs=6, penalty=_penalty, optimizer=lotan.SGD(lr=0.1))
    assert _losses(run) == pytest.approx(_curve(theirs, data, 6), rel=1e-5)
    last = run.history[-1]["metrics"]["train"]["loss"]
    with torch.no_grad():
        rows = data.rows(0)
        plain = functional.cross_entropy(data.logits(theirs)[rows], torch.from_numpy(data.label)[rows])
    assert last == pytest.approx(plain.item(), rel=1e-4)  # a metric of the output alone


def test_a_parameter_that_the_loss_does_not_reach_is_trained_by_the_penalty() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.aside = lotan.nn.GCNConv(8, 3), torch.nn.Parameter(torch.ones(2))

        def forward(self, x: Tensor, graph: Any) -> Tensor:
            return self.conv(x, graph)

    model, data = Model(), Data()
    _fit(model, data, epochs=3, eval_every=0, penalty=lambda p: p["aside"].square().sum(), optimizer=lotan.SGD(lr=0.25))
    torch.testing.assert_close(model.aside, torch.full((2,), 0.125))


def test_mini_batches_and_a_resumed_run_have_it(tmp_path: Path) -> None:
    data = Data()
    settings: dict[str, Any] = {"penalty": _penalty, "regime": lotan.MiniBatch(batch_size=8, fanouts=(3, 3))}
    for epochs in (2, 4):
        _fit(_pair()[0], data, epochs=epochs, checkpoint_dir=tmp_path / "a", resume=True, **settings)
    run = _fit(_pair()[0], data, epochs=4, checkpoint_dir=tmp_path / "b", **settings)
    assert_same_checkpoint(tmp_path / "a" / "last.pt", tmp_path / "b" / "last.pt")
    without = _fit(_pair()[0], data, epochs=4, regime=settings["regime"])
    assert np.all(np.array(_losses(run)) > np.array(_losses(without)))


def _refused(penalty: Callable[[Mapping[str, Tensor]], Any], match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        _fit(_pair()[0], Data(), epochs=1, penalty=penalty)


def test_other_penalties_are_refused() -> None:
    _refused(lambda p: p["conv.weight"].sum(), r"KeyError.*parameters, which are convs\.0\.bias, convs\.0\.lin\.weight")
    _refused(lambda p: p["convs.0.bias"], r"float32 of shape \[16\]; expected a tensor of one number")
    _refused(lambda p: 0.5, "0.5; expected a tensor of one number")
    _refused(lambda p: p["convs.0.bias"].detach().sum(), "no parameter that is trained")
    _refused("l2", "expected a function of the parameters")  # type: ignore[arg-type]
    with pytest.raises(DivergedError, match=r"penalty .* is (inf|nan|-inf), or its gradient"):
        _fit(_pair()[0], Data(), epochs=1, penalty=lambda p: p["convs.0.lin.weight"].sum() * float("inf"))
