from __future__ import annotations

import inspect

import pytest
import torch

from lotan.cli.options import OPTIMIZERS as NAMES
from lotan.errors import ConfigurationError
from lotan.settings.optimizers import (
    OPTIMIZERS,
    SGD,
    Adagrad,
    Adam,
    AdamW,
    NAdam,
    Optimizer,
    RMSprop,
    Rprop,
    optimizer_by_name,
    plain_optimizer,
)


def _model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 3))


def _steps(model: torch.nn.Module, optimizer: torch.optim.Optimizer, count: int = 10) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.randn(5, 4, generator=generator)).square().mean().backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Adam(lr=0.01, betas=(0.8, 0.99), weight_decay=0.1, amsgrad=True), (torch.optim.Adam, {})),
        (AdamW(lr=0.01), (torch.optim.AdamW, {})),
        (SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01), (torch.optim.SGD, {})),
        (Adagrad(lr=0.1, lr_decay=0.1), (torch.optim.Adagrad, {})),
        (NAdam(lr=0.01, decoupled_weight_decay=True, weight_decay=0.1), (torch.optim.NAdam, {})),
        (RMSprop(lr=0.01, momentum=0.9, centered=True), (torch.optim.RMSprop, {})),
        (Rprop(lr=0.01, etas=(0.4, 1.3)), (torch.optim.Rprop, {})),
    ],
)
def test_ten_steps_equal_torch(ours: Optimizer, theirs: tuple[type[torch.optim.Optimizer], dict[str, object]]) -> None:
    arguments = {name: value for name, value in vars(ours).items() if name != "groups"}
    model, peer = _model(), _model()
    got = _steps(model, ours.build(dict(model.named_parameters())))
    expected = _steps(peer, theirs[0](peer.parameters(), **arguments))
    for left, right in zip(got, expected, strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("kind", OPTIMIZERS.values())
def test_defaults_are_those_of_torch(kind: type[Optimizer]) -> None:
    theirs = inspect.signature(kind.torch_class.__init__).parameters
    for name, value in vars(kind()).items():
        if name != "groups":
            assert value == theirs[name].default, name


def test_groups_apply_to_a_module_and_the_longest_name_holds() -> None:
    model, peer = _model(), _model()
    ours = Adam(lr=0.01, groups={"0": {"weight_decay": 5e-4}, "0.bias": {"lr": 0.1}})
    got = _steps(model, ours.build(dict(model.named_parameters())))
    theirs = torch.optim.Adam(
        [
            {"params": [peer[0].weight], "weight_decay": 5e-4},
            {"params": [peer[0].bias], "lr": 0.1},
            {"params": peer[1].parameters()},
        ],
        lr=0.01,
    )
    for left, right in zip(got, _steps(peer, theirs), strict=True):
        assert torch.equal(left, right)


def test_a_prefix_is_a_whole_name() -> None:
    model = torch.nn.ModuleDict({"conv1": torch.nn.Linear(1, 1), "conv10": torch.nn.Linear(1, 1)})
    optimizer = SGD(groups={"conv1": {"lr": 1.0}}).build(dict(model.named_parameters()))
    rates = {name: group["lr"] for group in optimizer.param_groups for name in group["param_names"]}
    assert rates == {"conv1.weight": 1.0, "conv1.bias": 1.0, "conv10.weight": 1e-3, "conv10.bias": 1e-3}


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (Adam(groups={"convs.7": {"lr": 1.0}}), "convs.7"),
    ],
)
def test_what_cannot_be_is_refused(optimizer: Optimizer, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        optimizer.build(dict(_model().named_parameters()))


def test_nothing_to_train_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no parameters to train"):
        Adam().build({})


def test_by_name() -> None:
    assert optimizer_by_name("AdamW", lr=0.5) == AdamW(lr=0.5)
    with pytest.raises(ConfigurationError, match=r"lion.*adam, adamw, sgd, adagrad"):
        optimizer_by_name("lion")
    with pytest.raises(ConfigurationError, match="momentum"):
        optimizer_by_name("adam", momentum=0.9)
    with pytest.raises(ConfigurationError, match="LBFGS is not supported: it computes several losses"):
        optimizer_by_name("LBFGS")


def test_weight_decay_is_for_those_that_have_it() -> None:
    assert plain_optimizer("rmsprop", 0.1, None) == RMSprop(lr=0.1, weight_decay=5e-4)
    assert plain_optimizer("rmsprop", 0.1, 0.0) == RMSprop(lr=0.1)
    assert plain_optimizer("rprop", 0.1, None) == Rprop(lr=0.1)
    with pytest.raises(ConfigurationError, match="weight_decay"):
        plain_optimizer("rprop", 0.1, 0.0)


def test_the_command_line_names_all() -> None:
    assert tuple(OPTIMIZERS) == NAMES


def test_pairs_and_flags_are_checked() -> None:
    for wrong in ({"etas": 0.5}, {"etas": (0.5, "x")}, {"step_sizes": (1.0,)}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            Rprop(**wrong)
    with pytest.raises(ConfigurationError, match="centered"):
        RMSprop(centered="no")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fused", "leave it out"),
        ("maximize", "returns the negative"),
        ("learning_rate", "pass it as lr"),
        ("esp", "'eps'"),
    ],
)
def test_arguments_of_other_names_are_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Adam takes no argument '{name}'.*{message}"):
        Adam(**{name: True})
