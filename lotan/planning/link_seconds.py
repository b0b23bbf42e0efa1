"""The estimated seconds of a link task beside its plan: scores of training, and the ranks of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from lotan.settings.tasks import ALL, LinkPrediction
from planner.cost.seconds import Pricing

SCORE_PRODUCTS = 3  # products of matrices for a score: itself, and the gradients of both ends
SCORE_OPERATIONS = 3  # operations on each score: the exponent, its sum, and the gradient
STEP_OPERATIONS = 4  # on each number of a row and its state: read, summed, changed, written

BATCH_SECONDS = 6.5e-3
"""The seconds that a batch of links takes whatever its size: some hundred operators begin. Measured on two cores."""

# Measured on two cores, with 20,000 and 100,000 vertices and rows of 16 to 128 numbers.
RANK_PRODUCTS = 4.0  # products of few rows with many take so many times the seconds of large ones
RANK_OPERATIONS = 7.0  # operations on each score: greater than that of the link, equal to it, and the sums of both
DISTANCE_OPERATIONS = 1.5  # operations on each number of a row, for scores that are no products of matrices
PRODUCTS = ("dot", "distmult", "complex")
"""The decoders whose scores of one end against all vertices are a product of matrices."""


@dataclass(frozen=True)
class LinkSeconds:
    """The estimated seconds of a link task beside its plan."""

    scoring: float = 0.0  # of an epoch: links and negatives are scored; from a disk, rows are changed too
    ranking: float = 0.0  # of an evaluation


NO_LINKS = LinkSeconds()


def scoring_seconds(
    task: LinkPrediction, training: int, batches: int, vertices: int, width: int, pricing: Pricing
) -> float:
    """Return the estimated seconds in which an epoch scores both ends of its links against their negatives.

    Args:
        task: The task.
        training: The number of training links.
        batches: The number of batches that they are cut into.
        vertices: The number of vertices.
        width: The numbers of a row.
        pricing: The seconds of a unit of work.
    """
    rates = pricing.rates
    scores = 2 * training * (vertices if task.negatives == ALL else int(task.negatives))
    products = SCORE_PRODUCTS * scores * width * rates.multiply_adds
    return products + SCORE_OPERATIONS * scores * rates.autograd_numbers + BATCH_SECONDS * batches


def changing_seconds(rows: int, width: int, states: int, pricing: Pricing) -> float:
    """Return the estimated seconds in which an epoch changes rows of a disk with the state of their optimizer.

    Args:
        rows: The number of times that a row is changed.
        width: The numbers of a row.
        states: The numbers of the optimizer for each number of a row.
        pricing: The seconds of a unit of work.
    """
    return STEP_OPERATIONS * (1 + states) * rows * width * pricing.rates.parameter_numbers


def ranking_seconds(task: LinkPrediction, validation: int, vertices: int, width: int, pricing: Pricing) -> float:
    """Return the estimated seconds in which an evaluation ranks both ends of links among all vertices.

    Args:
        task: The task.
        validation: The number of validation links.
        vertices: The number of vertices.
        width: The numbers of a row.
        pricing: The seconds of a unit of work, of this process.
    """
    rates = pricing.rates
    of_number = RANK_PRODUCTS * rates.multiply_adds
    if task.decoder_name not in PRODUCTS:
        of_number = DISTANCE_OPERATIONS * rates.autograd_numbers
    of_score = width * of_number + RANK_OPERATIONS * rates.autograd_numbers
    return 2 * validation * vertices * of_score / pricing.layout.cores
