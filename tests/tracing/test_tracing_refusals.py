"""Every model of `refused_models` is refused, with the line and the words that its comment asks for."""

from __future__ import annotations

import inspect

import pytest
import torch

from lotan.errors import ModelError
from lotan.nn import EdgeIndex
from lotan.tracing.trace import trace
from tests import refused_models

MODELS = [
    kind
    for name, kind in vars(refused_models).items()
    if inspect.isclass(kind)
    and issubclass(kind, torch.nn.Module)
    and kind.__module__ == refused_models.__name__
    and kind is not refused_models.Model
]


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_is_refused(kind: type[torch.nn.Module]) -> None:
    torch.manual_seed(0)
    with pytest.raises(ModelError) as refusal:
        trace(kind(), 6, training=True)
    message = str(refusal.value)
    lines, first = inspect.getsourcelines(kind)
    position, text = next((n, line.split("# ")[1].strip()) for n, line in enumerate(lines) if "# " in line)
    if text.startswith("here"):
        assert f"refused_models.py:{first + position}" in message
        text = text.removeprefix("here: ")
    for word in text.split(" | "):
        assert word in message


def test_torch_logs_nothing_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    class Narrow(refused_models.Model):
        def forward(self, x: torch.Tensor, graph: EdgeIndex) -> torch.Tensor:
            return x[:, :2] @ self.table

    with pytest.raises(ModelError, match="rows of width 2 by a parameter for rows of width 6"):
        trace(Narrow(), 6, training=True)
    assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def test_width_of_features_is_compared_with_the_first_layer() -> None:
    with pytest.raises(ModelError, match=r"layer 'conv'.*refused_models.py:\d+.*width 5.*in_channels is 6"):
        trace(refused_models.BatchNorm(), 5, training=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_parameters_of_another_precision_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ModelError, match=r"table.*torch.float(64|16).*model.float\(\)"):
        trace(refused_models.BatchNorm().to(dtype), 6, training=True)


def test_a_forward_without_a_graph_is_refused() -> None:
    with pytest.raises(ModelError, match=r"forward\(self, x, graph\)"):
        trace(torch.nn.Sequential(torch.nn.Linear(6, 4)), 6, training=True)


def test_lazy_parameters_are_refused() -> None:
    with pytest.raises(ModelError, match=r"weight.*lazy"):
        trace(torch.nn.Sequential(torch.nn.LazyLinear(4)), 6, training=True)


def test_flags_and_hooks_are_as_before_after_a_refusal() -> None:
    model = refused_models.SoftmaxOverRows()
    with pytest.raises(ModelError):
        trace(model, 6, training=False)
    assert model.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
