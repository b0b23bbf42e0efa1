"""The scope of a trace: the module whose forward is running, and the line of the user's program."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.fx import traceback as fx_traceback
from torch.nn.modules.batchnorm import _NormBase
from torch.overrides import TorchFunctionMode

from lotan.errors import ModelError
from lotan.nn.learned_rows import LearnedRows
from lotan.tracing.norms import Norms
from lotan.tracing.pyg.layers import why_refused
from lotan.tracing.refusals import (
    DEPENDS_ON_VALUES,
    FOREIGN_TENSOR,
    MIXED_ROWS,
    NO_FEATURES,
    described,
    located,
    user_line,
)
from lotan.tracing.replaced import replaced
from lotan.tracing.sequences import REPLACED as SEQUENCES
from lotan.tracing.signature import called_with_graph

_PRODUCT = re.compile(r"(?:multiplied \(\w+x|reduction dim, but got \[\w+, )(\d+)(?: and |\] X \[)(\d+)")
"""The words of torch for a product of matrices whose widths differ."""


class Scope:
    """Follows a model while it is traced, and refuses modules that are known to be untraceable before they run."""

    def __init__(self, model: torch.nn.Module, width: int | None = None) -> None:
        self._model = model
        self._width = width  # the width of the graph's features
        self._names = {id(module): name for name, module in model.named_modules()}
        self._kinds = {name: described(module) for name, module in model.named_modules()}
        self._open: list[str] = []
        self._failed = ""  # the innermost layer that an exception left
        self.norms = Norms(model, self.error)

    @property
    def layer(self) -> str:
        """The qualified name of the innermost module that is running."""
        return self._open[-1] if self._open else ""

    @property
    def kind(self) -> str:
        """The class of the innermost module that is running, or "" for one that its name describes well enough."""
        return self._kinds.get(self.layer, "")

    @property
    def line(self) -> str:
        """The user's line that is running."""
        return _line(list(traceback.walk_stack(sys._getframe(1)))[::-1])

    def error(self, reason: str) -> ModelError:
        """Return a ModelError for the line that is running."""
        return located(self.layer, self.line, reason, self.kind)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Follow the model's modules, and add layer and line to the nodes that torch.fx makes."""
        handles = [
            handle
            for module in self._model.modules()
            for handle in (
                module.register_forward_pre_hook(self._enter, prepend=True),
                module.register_forward_hook(self._leave, always_call=True),
            )
        ]
        try:
            with (
                self.norms.replaced(),
                replaced(self._model.modules(), SEQUENCES, self.error),
                fx_traceback.preserve_node_meta(),
            ):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def run(self, parameters: dict[str, Tensor], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call the model. The frames inside this one are the model's own."""
        with _Notes(self):
            return torch.func.functional_call(self._model, parameters, arguments, keywords)

    def explain(self, error: Exception) -> ModelError:
        """Return the ModelError for an exception of the model's forward."""
        text, kind = str(error).strip().split("\n")[0], type(error).__name__
        if "DataDependent" in kind or "data-dependent" in text or "on a meta tensor" in text:
            reason = DEPENDS_ON_VALUES
        elif "convert all Tensors to FakeTensors" in text:
            reason = FOREIGN_TENSOR
        elif (widths := _PRODUCT.search(text)) is not None:
            given, wanted = widths.groups()
            reason = (
                f"multiplies rows of width {given} by a parameter for rows of width {wanted} (the graph's features have width "
                f"{self._width}); make the layer for that width, or name other feature columns"
            )
        elif re.search(r"\(s\d+\)", text):  # two sizes that differ, one of them a number of rows
            reason = f"{MIXED_ROWS} ({text.rstrip(')')})"
        elif isinstance(error, TypeError) and ".forward() " in text:
            reason = f"{text}; expected a model whose forward takes the features and the graph: forward(self, x, graph)"
            reason += ", or the tensors of a graph: forward(self, x, edge_index)"
        elif kind == "FakeTensorDeviceMismatchError" or "NVIDIA driver" in text or "not compiled with CUDA" in text:
            reason = "moves tensors to another device; leave devices out of forward, for workers compute on the CPU"
        elif isinstance(error, AttributeError) and "'FakeTensor'" in text:
            reason = f"{text.replace('FakeTensor', 'Tensor')}; edges are a tensor of two rows, and no sparse matrix"
        elif ".numpy()" in text:
            reason = "leaves torch by .numpy(), so that nothing can follow it; write this with torch's operators"
        else:
            reason = f"forward failed while it was traced: {kind}: {text}"
        hint = (
            "" if self._width is None or isinstance(error, NotImplementedError) else called_with_graph(self._model)
        )  # it is None of a loss
        reason += f"; {hint}" if hint and hint not in reason else ""
        layer = self._failed or self.layer
        line = _line(list(traceback.walk_tb(error.__traceback__)))
        return located(layer, line, reason, self._kinds.get(layer, ""))

    def _enter(self, module: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
        self._open.append(self._names[id(module)])
        self._failed = ""
        if isinstance(module, _NormBase) and not self.norms.replaces(module):
            raise self.error(
                f"{type(module).__name__} normalises over all vertices in a way that is not supported; use torch.nn.BatchNorm1d "
                "or torch.nn.LayerNorm"
            )
        reason = why_refused(module)
        if reason is not None:
            raise self.error(reason)
        self._check_width(module, arguments)

    def _leave(self, module: torch.nn.Module, arguments: tuple[Any, ...], result: Any) -> None:
        if result is None and not self._failed:
            self._failed = self.layer
        self._open.pop()

    def _check_width(self, module: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
        linear = isinstance(module, torch.nn.Linear)
        expected = getattr(module, "in_features" if linear else "in_channels", None)
        known = type(module).__module__.startswith(("lotan.nn", "torch_geometric.nn"))
        if not (known or linear) or not arguments or not isinstance(arguments[0], Tensor) or not arguments[0].dim():
            return
        given = arguments[0].shape[-1]
        if getattr(module, "first_aggr", True) is False:  # a SignedConv behind another takes rows of twice the width
            return
        if given == 0 == self._width and not isinstance(module, LearnedRows):
            raise self.error(NO_FEATURES)
        if isinstance(expected, int) and expected > 0 and isinstance(given, int) and given != expected:
            name = "in_features" if linear else "in_channels"
            features = ", as the graph's features" if given == self._width else ""
            lacking = ", or give the graph features, of which it has none" if self._width == 0 else ""
            raise self.error(
                f"{type(module).__name__} got rows of width {given}{features}, but its {name} is {expected}; "
                f"make it {name}={given}{lacking}"
            )


class _Notes(TorchFunctionMode):
    """Adds layer and line to every operator, from where torch.fx copies them to the node."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self._scope = scope

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        scope = self._scope
        if torch.is_autocast_enabled("cpu"):
            raise scope.error(
                "computes under torch.autocast, and plans compute in torch.float32; leave autocast out of forward, and train "
                "outside of it"
            )
        if torch.is_inference_mode_enabled():
            raise scope.error(
                "computes under torch.inference_mode; leave it out of forward, and use .detach() on what is to "
                "have no gradient"
            )
        fx_traceback.current_meta["custom"] = {"layer": scope.layer, "line": scope.line, "kind": scope.kind}
        return func(*args, **(kwargs or {}))


def _line(frames: list[tuple[Any, int]]) -> str:
    """Return the user's line among the frames inside the model's forward. `frames` begins with the outermost."""
    start = max((i for i, (frame, _) in enumerate(frames) if frame.f_code is Scope.run.__code__), default=len(frames))
    return user_line([(frame.f_code.co_filename, line) for frame, line in frames[start + 1 :]])
