"""Random models: chains, branches, skips and shared layers of every kind, over which rules have to agree.

Activations are smooth: a number that float32 puts on the other side of a kink is no error of a plan.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import torch
from torch import Tensor

from lotan import nn
from tests.exactness.cases import OUT, WIDTH

WIDTHS = (1, 2, 3, 6, 11)
MOST_STEPS = 8


class Hop(nn.MessagePassing):
    """The sum of x_j, weighted if so said: no parameter takes part."""

    def __init__(self, aggr: str, weighted: bool) -> None:
        super().__init__(aggr)
        self.weighted = weighted

    def forward(self, x: Tensor, graph: nn.EdgeIndex) -> Tensor:
        return self.propagate(graph, x)

    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        return x_j * edge_weight.unsqueeze(-1) if self.weighted else x_j


class Gated(nn.MessagePassing):
    """A message with a parameter on edges, times a number of the destination: it is collected."""

    def __init__(self, given: int, made: int) -> None:
        super().__init__("mean")
        self.of_both = torch.nn.Linear(given, made)

    def forward(self, x: Tensor, graph: nn.EdgeIndex) -> Tensor:
        return self.propagate(graph, x)

    def message(self, x_j: Tensor, x_i: Tensor) -> Tensor:
        return torch.tanh(self.of_both(x_j - 0.5 * x_i)) * torch.sigmoid(x_i[:, :1])


class Scaled(torch.nn.Module):
    """Every row times, or by, a number of its own."""

    def __init__(self, divides: bool) -> None:
        super().__init__()
        self.divides = divides

    def forward(self, x: Tensor) -> Tensor:
        factor = 1 + torch.sigmoid(x[:, :1])
        return x / factor if self.divides else factor * x


class Drawn(torch.nn.Module):
    """A list of instructions, each of which makes a value of earlier ones; the last is the output.

    Args:
        seed: of the instructions.
        dropping: whether there may be dropout.
    """

    def __init__(self, seed: int, dropping: bool) -> None:
        super().__init__()
        self.random, self.dropping = np.random.default_rng(seed), dropping
        self.layers = torch.nn.ModuleList()
        self.shared: list[tuple[int, int, int]] = []  # layer, the width it takes, the width it makes
        self.widths = [WIDTH]
        self.instructions: list[tuple[str, int, tuple[int, ...]]] = []  # kind, layer, values
        for _ in range(self.random.integers(1, MOST_STEPS + 1)):
            self._add()
        self._layer(self._pick(), torch.nn.Linear(self.widths[self._last], OUT), OUT, "rows")
        del self.random
        self.needed = self._needed()

    def forward(self, x: Tensor, graph: nn.EdgeIndex) -> Tensor:
        values = [x]
        for number, (kind, layer, given) in enumerate(self.instructions, start=1):
            if number not in self.needed:
                values.append(x)  # nobody reads it
                continue
            rows = [values[number] for number in given]
            match kind:
                case "add":
                    values.append(rows[0] + rows[1])
                case "mul":
                    values.append(rows[0] * torch.sigmoid(rows[1]))
                case "cat":
                    values.append(torch.cat(rows, dim=-1))
                case "rows":
                    values.append(self.layers[layer](rows[0]))
                case "graph":
                    values.append(self.layers[layer](rows[0], graph))
        return values[-1]

    def _needed(self) -> set[int]:
        """The values that the output depends on: tracing leaves others out, and with them their random numbers."""
        needed = {len(self.instructions)}
        for number in range(len(self.instructions), 0, -1):
            if number in needed:
                needed.update(self.instructions[number - 1][2])
        return needed

    # -- drawing ---------------------------------------------------------------------------------------------------

    def _pick(self) -> int:
        """A value; later ones more often."""
        self._last = max(self.random.integers(0, len(self.widths), 2))
        return self._last

    def _chance(self) -> bool:
        return bool(self.random.random() < 0.5)

    def _layer(self, given: int, layer: torch.nn.Module, width: int, kind: str) -> None:
        self.layers.append(layer)
        self.instructions.append((kind, len(self.layers) - 1, (given,)))
        self.widths.append(width)

    def _add(self) -> None:
        choices: list[Callable[[], None]] = [
            self._convolve,
            self._map,
            self._convolve,
            self._map,
            self._plain,
            self._join,
        ]
        choices += [self._again] if self.shared else []
        choices[self.random.integers(len(choices))]()

    def _convolve(self) -> None:
        """A layer with parameters that reads neighbours."""
        given, made = self._pick(), int(self.random.choice(WIDTHS))
        width = self.widths[given]
        makers: list[Callable[[], torch.nn.Module]] = [
            lambda: nn.GCNConv(width, made, normalize=self._chance(), bias=self._chance()),
            lambda: nn.SAGEConv(width, made, aggr=str(self.random.choice(["mean", "sum", "max"])), root_weight=self._chance()),
            lambda: nn.GATConv(width, made, heads=2, concat=False),
            lambda: nn.GINConv(torch.nn.Sequential(torch.nn.Linear(width, made), torch.nn.Tanh()), train_eps=self._chance()),
            lambda: Gated(width, made),
        ]  # fmt: skip
        self.shared.append((len(self.layers), width, made))
        self._layer(given, makers[self.random.integers(len(makers))](), made, "graph")

    def _map(self) -> None:
        """Something done to every row."""
        given = self._pick()
        width, made = self.widths[given], int(self.random.choice(WIDTHS))
        match self.random.integers(5):
            case 0 | 1:
                self._layer(given, torch.nn.Linear(width, made, bias=self._chance()), made, "rows")
            case 2:
                self._layer(given, torch.nn.ELU() if self._chance() else torch.nn.Tanh(), width, "rows")
            case 3:
                self._layer(given, Scaled(self._chance()), width, "rows")
            case 4:
                self._layer(given, torch.nn.Dropout(0.4 if self.dropping else 0.0), width, "rows")

    def _plain(self) -> None:
        """A sum over neighbours without a parameter."""
        given = self._pick()
        hop = Hop(str(self.random.choice(["sum", "mean"])), weighted=self._chance())
        self._layer(given, hop, self.widths[given], "graph")

    def _join(self) -> None:
        """Two values together."""
        one, other = self._pick(), self._pick()
        same = self.widths[one] == self.widths[other]
        kind = ("add" if self._chance() else "mul") if same else "cat"
        self.instructions.append((kind, -1, (one, other)))
        self.widths.append(self.widths[one] if same else self.widths[one] + self.widths[other])

    def _again(self) -> None:
        """An earlier layer once more, on another value of the width it takes, if there is one."""
        layer, width, made = self.shared[self.random.integers(len(self.shared))]
        fitting = [number for number, has in enumerate(self.widths) if has == width]
        self.instructions.append(("graph", layer, (int(self.random.choice(fitting)),)))
        self.widths.append(made)


class Paired(Drawn):
    """Often with two layers of one kind over one value, which have everything but parameters in common."""

    def _convolve(self) -> None:
        super()._convolve()
        if self._chance():
            _, layer, (given,) = self.instructions[-1]
            twin, width = deepcopy(self.layers[layer]), self.widths[-1]
            with torch.no_grad():
                for parameter in twin.parameters():
                    parameter.mul_(-0.5)
            self._layer(given, twin, width, "graph")
            self.instructions.append(
                ("add" if self._chance() else "mul", -1, (len(self.widths) - 2, len(self.widths) - 1))
            )
            self.widths.append(width)
