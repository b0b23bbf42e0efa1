"""Dropout by counter: unbiased, independent in every coordinate, and the same for any chunking."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from lotan.graph.row_keys import vertex_keys
from lotan.stages.randomness import Mask, Randomness, draws, dropout, random_rows, threshold_of

ROWS, COLUMNS = 4000, 50
KEYS = torch.from_numpy(vertex_keys(np.arange(ROWS)))
BASE = Randomness(seed=3, epoch=5)


def uniform(randomness: Randomness = BASE, key: int | str = 1, keys: torch.Tensor = KEYS) -> np.ndarray:
    return draws(randomness, key, keys, COLUMNS) / 65536


def correlation(one: np.ndarray, two: np.ndarray) -> float:
    return float(np.corrcoef(one.ravel(), two.ravel())[0, 1])


LIMIT = 5 / np.sqrt(ROWS * COLUMNS)
"""Five standard deviations of the correlation of independent numbers."""


def test_draws_are_uniform() -> None:
    sample = uniform()
    assert sample.mean() == pytest.approx(0.5, abs=5 / np.sqrt(12 * sample.size))
    assert sample.var() == pytest.approx(1 / 12, rel=0.02)
    counts = np.histogram(sample, bins=256, range=(0, 1))[0]
    expected = sample.size / 256
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - 255) < 5 * np.sqrt(2 * 255)


def test_every_bit_is_fair_and_independent_of_the_others() -> None:
    bits = np.unpackbits(draws(BASE, 1, KEYS, 4).astype("<u2").view(np.uint8), axis=1).astype(float)  # [rows, 64]
    assert np.abs(bits.mean(0) - 0.5).max() < 5 * 0.5 / np.sqrt(ROWS)
    across = np.corrcoef(bits.T) - np.eye(64)
    assert np.abs(across).max() < 5.5 / np.sqrt(ROWS)


@pytest.mark.parametrize(
    "other",
    [
        uniform(Randomness(3, 6)),
        uniform(Randomness(4, 5)),
        uniform(Randomness(5, 3)),
        uniform(key=2),
        uniform(key="1"),
        uniform(keys=KEYS + 1),
        np.roll(uniform(), 1, axis=0),
        np.roll(uniform(), 1, axis=1),
        np.roll(uniform(), 4, axis=1),
    ],
    ids=["epoch", "seed", "seed and epoch swapped", "operator", "name", "row keys", "row", "column", "hash"],
)
def test_neighbouring_streams_are_independent(other: np.ndarray) -> None:
    assert abs(correlation(uniform(), other)) < LIMIT
    assert abs(correlation(uniform() > 0.5, other > 0.5)) < LIMIT


def test_small_row_keys_are_as_good_as_hashes() -> None:
    """Consecutive numbers, as the counter of a stream could have them."""
    sample = uniform(keys=torch.arange(ROWS))
    for one, two in itertools.combinations(range(8), 2):
        assert abs(correlation(sample[:, one], sample[:, two])) < 5 / np.sqrt(ROWS)
    assert abs(correlation(sample[1:], sample[:-1])) < LIMIT


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.9])
def test_dropout_keeps_the_expectation(p: float) -> None:
    y = dropout(torch.ones(ROWS, COLUMNS), p, BASE, 1, KEYS)
    kept = y != 0
    spread = np.sqrt(p * (1 - p) / y.numel())
    assert kept.float().mean().item() == pytest.approx(1 - p, abs=5 * spread)
    scale = y[kept].unique()
    assert scale.numel() == 1
    assert scale.item() == pytest.approx(1 / (1 - p), rel=1e-4)
    # Unbiased exactly: the scale is the inverse of the probability that 16 bits give, not of p.
    assert (1 - round(p * 65536) / 65536) * scale.item() == pytest.approx(1, rel=1e-7)


def test_half_is_scaled_by_two() -> None:
    assert set(dropout(torch.ones(100, 10), 0.5, BASE, 1, KEYS[:100]).unique().tolist()) == {0.0, 2.0}


def test_nothing_and_everything() -> None:
    x = torch.randn(10, 3)
    assert torch.equal(dropout(x, 0.0, BASE, 1, KEYS[:10]), x)
    assert not dropout(x, 1.0, BASE, 1, KEYS[:10]).any()


@pytest.mark.parametrize("shape", [(), (1,), (3,), (4,), (17,), (2, 5)])
def test_any_chunking_and_order_draws_the_same(shape: tuple[int, ...]) -> None:
    x = torch.ones(ROWS, *shape)  # with (17,) more rows than are drawn at a time
    whole = dropout(x, 0.5, BASE, 1, KEYS)
    parts = [dropout(x[: k.numel()], 0.5, BASE, 1, k) for k in KEYS.split((1, 7, 0, 492, ROWS - 500))]
    assert torch.equal(torch.cat(parts), whole)
    order = torch.randperm(ROWS)
    assert torch.equal(dropout(x, 0.5, BASE, 1, KEYS[order]), whole[order])


def test_rows_drawn_at_a_time_are_independent() -> None:
    """A row is independent of that at the same place in the block of rows drawn before, whatever the size of blocks."""
    sample = uniform(keys=torch.arange(ROWS))
    for distance in (1, 2, 512, 1000, 1024, 1260, 2048):
        assert abs(correlation(sample[distance:], sample[:-distance])) < 5 / np.sqrt((ROWS - distance) * COLUMNS)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_a_sum_over_columns_has_the_variance_of_independent_draws(p: float) -> None:
    kept = (dropout(torch.ones(ROWS, COLUMNS), p, BASE, 1, KEYS) != 0).sum(1).double()
    assert kept.var().item() == pytest.approx(COLUMNS * p * (1 - p), rel=5 * np.sqrt(2 / ROWS))


def test_a_mask_may_be_applied_in_place() -> None:
    x = torch.randn(ROWS, COLUMNS)
    expected = dropout(x, 0.25, BASE, "a", KEYS)
    mask = Mask(BASE.operator("a"), threshold_of(0.25), KEYS)
    assert torch.equal(mask.apply(x, out=x), expected)


def test_columns_do_not_depend_on_the_width() -> None:
    assert np.array_equal(draws(BASE, 1, KEYS, 50)[:, :13], draws(BASE, 1, KEYS, 13))


def test_the_gradient_passes_where_the_number_was_kept() -> None:
    x = torch.randn(100, 7, requires_grad=True)
    y = dropout(x, 0.25, BASE, 1, KEYS[:100])
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient * x.detach(), y.detach())


def test_known_numbers() -> None:
    """The stream must never change: a resumed run has to go on with the same numbers."""
    assert draws(Randomness(0, 0), 0, torch.tensor([0, 1, -1]), 5).tolist() == [
        [22888, 55661, 27928, 24882, 16720],
        [35249, 1714, 15358, 40669, 25819],
        [14654, 65525, 12585, 48157, 19630],
    ]
    assert draws(Randomness(1, 2), "a", torch.tensor([7]), 5).tolist() == [[51048, 46717, 25629, 32888, 40772]]


def test_as_many_keys_as_rows() -> None:
    with pytest.raises(ValueError, match="10 rows was given 9 row keys"):
        dropout(torch.ones(10, 2), 0.5, BASE, 1, KEYS[:9])


KINDS = {"uniform": (0.5, 1 / 12), "normal": (0.0, 1.0), "bernoulli": (0.3, 0.21), "chance": (0.25, 0.1875)}


def drawn(kind: str, randomness: Randomness = BASE, key: int | str = 1, keys: torch.Tensor = KEYS) -> torch.Tensor:
    return random_rows(torch.full((len(keys), 5, COLUMNS // 5), 0.3), kind, 0.25, randomness, key, keys)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_random_rows_have_the_moments_of_their_distribution(kind: str) -> None:
    sample = drawn(kind).double()
    mean, variance = KINDS[kind]
    assert sample.mean().item() == pytest.approx(mean, abs=5 * np.sqrt(variance / sample.numel()))
    assert sample.var().item() == pytest.approx(variance, rel=0.02)
    if kind == "normal":
        assert (sample**4).mean().item() == pytest.approx(3, rel=0.05)
        assert sample.abs().max() < 7
    if kind == "uniform":
        assert 0 <= sample.min() < 1e-3
        assert 1 - 1e-3 < sample.max() < 1


@pytest.mark.parametrize("kind", KINDS)
def test_random_rows_belong_to_seed_epoch_operator_and_row(kind: str) -> None:
    whole = drawn(kind)
    assert torch.equal(torch.cat([drawn(kind, keys=part) for part in KEYS.split(777)]), whole)
    assert torch.equal(drawn(kind, keys=KEYS.flip(0)).flip(0), whole)
    others = [drawn(kind, key=2), drawn(kind, Randomness(4, 5)), drawn(kind, Randomness(3, 6)), whole.roll(1, 0)]
    for other in [*others, whole.roll(1, 2)]:
        assert abs(correlation(whole.numpy(), other.numpy())) < LIMIT
    assert drawn(kind, keys=KEYS[:0]).shape == (0, 5, COLUMNS // 5)


def test_chances_at_the_ends() -> None:
    x = torch.zeros(len(KEYS), 3)
    assert not random_rows(x, "chance", 0.0, BASE, 1, KEYS).any()
    assert random_rows(x, "chance", 1.0, BASE, 1, KEYS).all()
