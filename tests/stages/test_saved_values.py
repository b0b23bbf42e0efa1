"""What a forward run keeps: put in a file and brought back, it gives the same bits as kept in memory, or as computed again."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lotan import nn
from lotan.engines.choice import ENGINES
from lotan.stages.chunk import Terms
from lotan.stages.kernels import Linear
from lotan.stages.pieces import Pieces
from lotan.stages.program import StageProgram
from lotan.stages.saved_values import Memory
from lotan.stages.spill_file import PAGE, SpillFile
from lotan.tracing.trace import trace_modes
from lotan.worker.saved_runs import SavedRuns
from messenger.jobs import ChunkKey
from planner import Options, compile_plan
from planner.cost.seconds import Pricing
from planner.keeping import recompute_seconds, spill_seconds
from planner.kernels import contracted, is_product, run_by_autograd
from planner.loss import LossSpec
from planner.physical import Stage
from planner.statistics import Statistics
from tests.exactness.cases import OUT
from tests.exactness.test_random_models import graph_of, specs_of
from tests.night import at_night
from tests.stages.runs import backward, forward
from tests.stages.test_flat import MODELS, SIZES, drawn, stages_of

pytestmark = pytest.mark.thorough

ROWS = 50
TERMS = Terms(spills=True, worth=1e-9)
KEY = ChunkKey("run", 1, "stage", "forward", 0, 0, 0, ROWS)


def with_values(name: str) -> list[StageProgram]:
    """The stages of a model that keep something."""
    programs = [StageProgram(stage) for stage in stages_of(name) if stage.loss is None]
    return [program for program in programs if program.flat and program._body.kept]


def gradients(program: StageProgram, budget: int, file: SpillFile | None) -> dict[str, torch.Tensor]:
    """Of three chunks that are all forward before the first is backward, by a worker that has so many bytes for them."""
    held, found = SavedRuns(budget, file), {}
    pieces = Pieces(program, rows=16)
    chunks = [drawn(program.stage, ROWS - number, seed=number) for number in range(3)]
    for number, (chunk, parameters, _) in enumerate(chunks):
        if held.takes(TERMS):
            saved = forward(pieces, chunk, parameters, keep=True)[1]
            held.put(_key(number), saved, saved.bytes, TERMS)
    for number, (chunk, parameters, given) in enumerate(chunks):
        result = backward(pieces, chunk, parameters, given, held.take(_key(number)))
        found |= {
            f"{number}/{name}": value
            for name, value in {**result.input_gradients, **result.parameter_gradients}.items()
        }
    if file is not None:
        assert file._extents.free == file._extents.end  # all room is free again
    return found


def _key(number: int) -> ChunkKey:
    return replace(KEY, chunk=number)


@pytest.mark.parametrize("name", MODELS)
def test_the_same_bits_with_no_budget_a_tiny_one_and_an_ample_one(name: str, tmp_path: Path) -> None:
    for program in with_values(name):
        ample = gradients(program, 1 << 30, None)
        for budget, file in ((0, None), (0, SpillFile(str(tmp_path))), (3000, SpillFile(str(tmp_path)))):
            found = gradients(program, budget, file)
            assert all(torch.equal(found[key], ample[key]) for key in ample)


@pytest.mark.parametrize("name", MODELS)
def test_a_stage_takes_over_the_memory_that_another_is_done_with(name: str) -> None:
    for own in with_values(name):
        memory, places = Memory(), []
        for program in (StageProgram(own.stage, memory=memory), StageProgram(own.stage, memory=memory)):
            chunk, parameters, given = drawn(own.stage, ROWS)
            saved = forward(program, chunk, parameters, keep=True)[1]
            places.append(sorted(value.data_ptr() for value in saved.values.values()))
            backward(program, chunk, parameters, given, saved)
        assert places[0] == places[1]


def test_threads_use_memory_again_whatever_stage_they_run() -> None:
    for name in MODELS:
        alone: set[tuple[int, int]] = set()
        for program in with_values(name):
            gradients(program, 0, None)
            alone |= program._body.memory.scratch._buffers.keys()
        shared = Memory()
        for own in with_values(name):
            gradients(StageProgram(own.stage, memory=shared), 0, None)
        assert {width: number for number, width in sorted(alone)} == {
            width: sum(of == width for _, of in shared.scratch._buffers) for _, width in alone
        }  # of each width, as many as the stage that needs most


def test_most_models_keep_something() -> None:
    assert sum(bool(with_values(name)) for name in MODELS) > len(MODELS) // 2


def test_the_file_has_no_name_and_its_room_is_used_again(tmp_path: Path) -> None:
    file = SpillFile(str(tmp_path))
    tensors = [torch.randn(7, 3), torch.randn(1000)]
    places = file.write(tensors)
    assert places is not None
    assert not list(tmp_path.iterdir())  # nothing that a killed process could leave behind
    for tensor, place in zip(tensors, places, strict=True):
        into = torch.empty_like(tensor)
        file.read(place, into)
        assert torch.equal(into, tensor)
    file.free(places)
    assert file.write(tensors) == places
    file.free(places)
    file.clear()
    assert file.write(tensors) == places


def test_a_full_disk_is_said_once_and_costs_a_rerun(tmp_path: Path, monkeypatch, caplog) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    (program,) = with_values("GIN")[:1]
    ample = gradients(program, 1 << 30, None)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with caplog.at_level(logging.WARNING):
        found = gradients(program, 0, SpillFile(str(tmp_path)))
    assert all(torch.equal(found[key], ample[key]) for key in ample)
    (line,) = [record.message for record in caplog.records if record.name == "lotan.stages.spill_file"]
    assert "No space left" in line
    assert str(tmp_path) in line


def test_what_does_not_fit_beside_the_rest_is_not_kept_in_part(tmp_path: Path, monkeypatch) -> None:
    real = os.posix_fallocate

    def little(file: int, offset: int, size: int) -> None:
        if offset + size > 2 * PAGE:
            raise OSError(28, "No space left on device")
        real(file, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", little)
    file = SpillFile(str(tmp_path))
    assert file.write([torch.zeros(PAGE), torch.zeros(PAGE)]) is None
    assert file._extents.free == file._extents.end


def test_a_second_attempt_and_the_end_of_a_run_free_what_was_written(tmp_path: Path) -> None:
    (program,) = with_values("GCN")[:1]
    file = SpillFile(str(tmp_path))
    held = SavedRuns(0, file)
    chunk, parameters, _ = drawn(program.stage, ROWS)
    for _ in range(2):
        held.put(KEY, forward(program, chunk, parameters, keep=True)[1], 1, TERMS)
    assert held.has(KEY)
    held.forget("run")
    assert not held.has(KEY)
    assert file._extents.free == file._extents.end


def test_what_is_cheap_to_make_again_is_not_written() -> None:
    width = 256
    assert spill_seconds(4 * width) < recompute_seconds(resent=width, computed=width, factors=0)  # sums, once more
    assert spill_seconds(4 * width) > recompute_seconds(resent=0, computed=width, factors=0)
    assert spill_seconds(4 * width) < recompute_seconds(resent=0, computed=width, factors=4096 * width)


@pytest.mark.parametrize("name", MODELS)
def test_the_plan_weighs_what_kernels_keep_against_what_they_run_again(name: str) -> None:
    found = {}
    for stage in stages_of(name):
        if stage.loss is None and stage.name.startswith("train"):
            body = StageProgram(stage)._body
            kept = sum(4 * body.widths[slot] for slot in body.kept.values())
            resent = sum(body.widths[number] for number, value, *_ in body.inputs if value not in body.rereads)
            products = [kernel for kernel in body.recomputed if isinstance(kernel, Linear)]
            factors = sum(body.widths[kernel.x] * body.widths[kernel.out] for kernel in products)
            computed = sum(body.widths[kernel.out] for kernel in body.recomputed)
            spilt, again = spill_seconds(kept), recompute_seconds(resent, computed, factors)
            wanted = "file" if kept and spilt < again else "recompute"
            worth = pytest.approx(min(spilt, again) / (kept or 1), rel=0.3)  # kernels fuse what the plan counts apart
            found[stage.name] = (stage.overflow, stage.worth), (wanted, worth)
    assert found or name == "MLP"
    assert all(ours == wanted for ours, wanted in found.values()), found


@pytest.mark.parametrize("name", [*MODELS, "GCN, gelu"])
def test_the_plan_knows_what_autograd_runs(name: str, monkeypatch) -> None:
    """Of which a worker puts nothing in a file."""
    monkeypatch.setitem(MODELS, "GCN, gelu", lambda: nn.GCN(**SIZES, act="gelu"))
    for stage in stages_of(name):
        assert run_by_autograd(stage) is not StageProgram(stage).flat, stage.name


@pytest.mark.parametrize("seed", at_night([(seed,) for seed in range(60)], unless=[(seed,) for seed in range(10)]))
def test_the_plan_knows_it_of_any_model(seed: int) -> None:
    """Gates, products with scores, quotients, sums over heads: whatever is drawn."""
    loss, options = LossSpec("classification", OUT, 1.0), Options(pricing=Pricing(ENGINES["blocks"]))
    plan = compile_plan(*specs_of(seed, seed % 2 > 0), loss, graph_of(seed).graph.statistics, options).plan
    for stage in plan.stages:
        assert run_by_autograd(stage) is not StageProgram(stage).flat, stage.calls


class Odd(torch.nn.Module):
    """Two layers, and between them something that kernels do or do not do."""

    def __init__(self, between: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.first, self.last = nn.GCNConv(6, 8), nn.GCNConv(8, OUT)
        self.weight, self.gain = torch.nn.Parameter(torch.ones(8, 8)), torch.nn.Parameter(torch.ones(8))
        self.each = torch.nn.Linear(4, 4)
        self.between = between

    def forward(self, x, edge_index):
        return self.last(self.between(self, self.first(x, edge_index)), edge_index)


ODD = {
    "a gate of parameters": (lambda m, x: x * torch.sigmoid(m.gain), True),
    "a computed matrix": (lambda m, x: torch.nn.functional.linear(x, 2 * m.weight), True),
    "a matrix for each head": (lambda m, x: (x.view(-1, 2, 1, 4) @ m.weight.view(4, 4, 4)[:2]).flatten(1), True),
    "a matrix before rows": (lambda m, x: (m.weight @ x.unsqueeze(-1)).flatten(1), True),
    "a product with a bias": (lambda m, x: torch.addmm(m.gain.view(1, 8), x, m.weight), True),
    "a product with a vector": (lambda m, x: (x @ m.gain).unsqueeze(-1) + x, True),
    "a matrix seen as it is": (lambda m, x: torch.nn.functional.linear(x, m.weight.view(8, 8), m.gain.view(8)), False),
    "a matrix seen otherwise": (lambda m, x: torch.nn.functional.linear(x, m.weight.view(4, 16).view(8, 8)), False),
    "a bias": (lambda m, x: x + m.gain, False),
    "a bias of one head": (lambda m, x: (x.view(-1, 1, 8) + m.gain.view(1, 1, 8)).flatten(1), False),
    "a computed bias": (lambda m, x: x + (m.gain + 1), True),
    "a map of each head": (lambda m, x: m.each(x.view(-1, 2, 4)).flatten(1), True),
    "a sum over heads of rows": (lambda m, x: x + x.sum(-1, keepdim=True), True),
    "a bias before rows": (lambda m, x: m.gain + x, True),
    "a number": (lambda m, x: 2 * x / 3, False),
    "a number, by the overload that kernels do not know": (lambda m, x: torch.ops.aten.mul.Scalar(x, 2.0), True),
    "a number by rows": (lambda m, x: 3 / (x + 9), True),
    "a flat slope": (lambda m, x: torch.nn.functional.leaky_relu(x, 0.0), True),
    "a slope": (lambda m, x: torch.nn.functional.leaky_relu(x, 0.1), False),
    "elu": (lambda m, x: torch.nn.functional.elu(x, 0.5), False),
    "elu with a negative scale": (lambda m, x: torch.ops.aten.elu(x, 0.5, -2.0, 1.0), True),
    "a dropout of nothing": (lambda m, x: torch.nn.functional.dropout(x, 1e-6, m.training), True),
    "dropout": (lambda m, x: torch.nn.functional.dropout(x, 1e-4, m.training), False),
}


def odd_stages(case: str) -> tuple[Stage, ...]:
    specs = trace_modes(Odd(ODD[case][0]), 6)
    return compile_plan(*specs, LossSpec("classification", OUT, 1.0), Statistics(100, 500, 6)).plan.stages


@pytest.mark.parametrize("case", ODD)
def test_the_plan_knows_it_of_what_is_almost_a_kernel(case: str) -> None:
    stages = odd_stages(case)
    for stage in stages:
        assert run_by_autograd(stage) is not StageProgram(stage).flat, stage.calls
    assert any(map(run_by_autograd, stages)) == ODD[case][1]


@pytest.mark.parametrize(
    ("case", "factors"),
    [
        ("a computed matrix", 8),
        ("a map of each head", 4),
        ("a matrix for each head", 4),
        ("a matrix before rows", 8),
        ("a product with a bias", 8),
        ("a product with a vector", 8),
    ],
)
def test_a_product_multiplies_as_many_numbers_as_its_matrix_is_long(case: str, factors: int) -> None:
    found = [contracted(s, c) for s in odd_stages(case) for c in s.calls if is_product(c) and c.layer in ("", "each")]
    assert set(found) == {factors}


def test_plans_know_both() -> None:
    chosen = {stage.overflow for name in MODELS for stage in stages_of(name) if stage.name.startswith("train")}
    assert chosen == {"file", "recompute"}


def test_what_autograd_saved_goes_with_its_graph() -> None:
    """A hook that gives back the output of a call as it is ties it to its own graph: neither would ever be freed."""
    x = torch.ones(8, 16, requires_grad=True)
    with SavedRuns(0).measured() as size:
        y = torch.sigmoid(x)  # saves its output
    (gradient,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    assert torch.equal(gradient, y * (1 - y))
    assert size.bytes == 4 * 8 * 16
    gone = weakref.ref(y)
    del y
    assert gone() is None
