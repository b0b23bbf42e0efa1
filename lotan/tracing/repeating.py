"""Loops over a number whose rounds differ in that number alone: two rounds are recorded, and the others are copies.

torch takes some 0.1 s to record a round of PyG's `RGCNConv`, which has one for each relation, and milliseconds to copy it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.fx import Graph, Node, Proxy
from torch.fx.experimental import proxy_tensor

Round = Callable[[Tensor, int], Tensor]
"""One round of a loop. It returns the next value of a tensor, given the present one and the number of the round."""


def repeated(one: Round, start: Tensor, rounds: int) -> Tensor:
    """Return the value of a tensor after the rounds 0, 1, ... of a loop, each of which may make it anew.

    Within a recording, what rounds 0 and 1 recorded is compared. If they do the same, except that some numbers are those of
    the rounds, the further rounds are recorded as copies. Otherwise they run.

    Args:
        one: a round. What it does may depend on its number only as an argument of operators.
        start: the value before the first round. Each value has the same shape.
        rounds: the number of rounds.
    """
    mode = proxy_tensor.get_proxy_mode()
    recorded: list[list[Node]] = []
    value, results = start, [_node_of(mode, start)]
    for number in range(rounds):
        if mode is not None and number == 2 and (pattern := _Pattern.of(results, recorded)) is not None:
            last = pattern.copied(mode.tracer.graph, rounds)
            # the tensor of round 1, which nothing reads any more, stands for that of the last round
            held = mode.tracer.tensor_tracker[value]
            mode.tracer.tensor_tracker[value] = type(held)(Proxy(last, mode.tracer), None)
            return value
        before = 0 if mode is None else len(mode.tracer.graph.nodes)
        value = one(value, number)
        if mode is not None and number < 2:
            recorded.append(list(mode.tracer.graph.nodes)[before:])
            results.append(_node_of(mode, value))
    return value


def _node_of(mode: Any, value: Tensor) -> Node | None:
    """Return the node that stands for a tensor in a recording, or None."""
    held = None if mode is None else mode.tracer.tensor_tracker.get(value)
    return None if held is None else held.proxy.node


class _Pattern:
    """A description of the nodes that a round records, in which some arguments are the number of the round.

    Args:
        nodes: the nodes of round 1.
        numbered: the places in them that hold the number, see `_differences`.
        before: the node of the value before round 1.
        after: the node of the value after it.
    """

    def __init__(self, nodes: Sequence[Node], numbered: set[tuple[int, int]], before: Node, after: Node) -> None:
        self._nodes, self._numbered, self._before, self._after = nodes, numbered, before, after

    @classmethod
    def of(cls, results: Sequence[Node | None], recorded: Sequence[Sequence[Node]]) -> _Pattern | None:
        """Return the pattern of a loop after two rounds, or None if the rounds differ in more than their numbers.

        Args:
            results: the nodes of the values before round 0, after it, and after round 1.
            recorded: the nodes of both rounds.
        """
        start, before, after = results
        first, second = recorded
        if start is None or before is None or after is None or len(first) != len(second):
            return None
        alike: dict[Node, Node] = {start: before, **dict(zip(first, second, strict=True))}
        numbered = set()
        for place, (one, other) in enumerate(zip(first, second, strict=True)):
            if (one.op, one.target, one.kwargs) != (other.op, other.target, other.kwargs) or one.op == "get_attr":
                return None
            if any(isinstance(value, Node) for value in one.kwargs.values()) or len(one.args) != len(other.args):
                return None
            for at, (left, right) in enumerate(zip(one.args, other.args, strict=True)):
                if type(left) is int and (left, right) == (0, 1):
                    numbered.add((place, at))
                elif _moved(left, alike) != right:
                    return None
        return cls(second, numbered, before, after) if alike.get(before) is after else None

    def copied(self, graph: Graph, rounds: int) -> Node:
        """Record the rounds from 2 on, and return the node of the last one's value."""
        value = self._after
        for number in range(2, rounds):
            made: dict[Node, Node] = {self._before: value}
            for place, node in enumerate(self._nodes):
                copy = graph.node_copy(node, lambda one, made=made: made.get(one, one))  # type: ignore[misc]
                for at in range(len(copy.args)):
                    if (place, at) in self._numbered:
                        copy.update_arg(at, number)
                made[node] = copy
            value = made[self._after]
        return value


def _moved(argument: Any, alike: dict[Node, Node]) -> Any:
    """Return an argument of a node of round 0 as that of round 1 has to be."""
    if isinstance(argument, tuple | list):
        return type(argument)(_moved(one, alike) for one in argument)
    return alike.get(argument, argument) if isinstance(argument, Node) else argument
