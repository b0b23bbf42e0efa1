from __future__ import annotations

import numpy as np

import lotan
from lotan.batches.examples import batches_of_epoch, examples_of
from lotan.stages.randomness import Randomness


def arrays(label: np.ndarray, split: np.ndarray):
    vertices = len(split)
    edges = np.arange(vertices)
    return lotan.Graph.from_arrays(np.ones((vertices, 2), np.float32), edges, edges, label, split).arrays()


def test_examples_are_training_vertices_with_a_label() -> None:
    split = np.array([0, 0, 1, 0, -1], dtype=np.int8)
    assert examples_of(arrays(np.array([1, -1, 0, 0, 1]), split)).tolist() == [0, 3]
    several = np.array([[0, 1], [np.nan, np.nan], [1, 0], [np.nan, 1], [0, 0]], dtype=np.float32)
    assert examples_of(arrays(several, split)).tolist() == [0, 3]


def test_every_example_is_in_one_batch_and_each_epoch_has_an_order_of_its_own() -> None:
    examples, keys = np.arange(3, 50), np.random.default_rng(0).integers(-(2**63), 2**63, 60)
    batches = batches_of_epoch(examples, keys, 10, Randomness(0, 1))
    assert [len(batch) for batch in batches] == [10, 10, 10, 10, 7]
    assert sorted(np.concatenate(batches).tolist()) == examples.tolist()
    assert all((np.diff(batch) > 0).all() for batch in batches)
    again, later, other = (batches_of_epoch(examples, keys, 10, of)
                           for of in (Randomness(0, 1), Randomness(0, 2), Randomness(1, 1)))  # fmt: skip
    assert all((one == two).all() for one, two in zip(batches, again, strict=True))
    assert batches[0].tolist() != later[0].tolist() != other[0].tolist()
