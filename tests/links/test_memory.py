"""The memory of scores: a limit makes parts smaller, to the same numbers, and is refused where one link does not fit."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

import lotan
from lotan.errors import ConfigurationError
from lotan.links.decoders import make_decoder
from lotan.links.memory import ScoreSizes
from lotan.links.pairs import SCORES, Negatives, score
from lotan.links.ranks import metrics_of, rank
from lotan.planning.identity import identity
from lotan.settings.byte_sizes import byte_count
from planner.shares import MIB
from tests.links.graphs import WIDTH, graph, linked

TASK = lotan.LinkPrediction(decoder="distmult", negatives=15, filtered=True)


def test_smaller_parts_have_the_same_loss_gradients_and_ranks() -> None:
    links = linked(3).links
    decoder, rows = make_decoder(TASK, 6, 3, seed=0), torch.randn(links.vertices, 6)
    drawn = Negatives(links, TASK)
    pairs = drawn.pairs(np.arange(len(drawn.training)), 1, 0)
    whole, parts = (score(decoder, rows, [pairs], len(pairs.src), "softmax", most) for most in (SCORES, 20))
    assert len(list(pairs.parts(20))) == len(pairs.src)  # of one link each
    assert parts.loss == pytest.approx(whole.loss, rel=1e-6)
    torch.testing.assert_close(parts.rows, whole.rows, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(parts.decoder["relation"], whole.decoder["relation"], rtol=1e-5, atol=1e-6)
    of_val = links.of("val")
    one, other = (rank(decoder, rows, of_val, links, most) for most in (SCORES, 1))
    np.testing.assert_array_equal(one.filtered, other.filtered)
    np.testing.assert_array_equal(one.raw, other.raw)
    plain = linked(3, relations=0).links
    dot = make_decoder(lotan.LinkPrediction(), 6, 1, seed=0)
    assert metrics_of(dot, rows, plain, plain, 0, 1) == metrics_of(dot, rows, plain, plain, 0)


def test_the_room_under_a_limit_decides_how_many_scores_there_are_at_one_time() -> None:
    sizes = ScoreSizes(links=1_000, batch=1024, candidates=4_000, rows=50_000, vertices=50_000, width=64)
    assert sizes.fitting(None) == sizes.fitting(1 << 40) == SCORES
    assert sizes.fitting(0) == sizes.least == 50_000
    less = sizes.fitting(sizes.bytes(SCORES) - 1)
    assert sizes.least < less < SCORES
    assert sizes.bytes(sizes.least) < sizes.bytes(less) < sizes.bytes(SCORES)
    assert sizes.bytes(SCORES) > 4 * 1024 * 4_000 * 10  # a batch by its negatives, at both ends


def prepared(**options: Any) -> lotan.Trainer:
    model = lotan.nn.GraphSAGE(WIDTH, 8, num_layers=1, out_channels=8)
    task = lotan.LinkPrediction(decoder="distmult", negatives=4_000, fractions=(0.1, 0.1))
    return lotan.Trainer(model, big(), task=task, epochs=1, progress=False, **options)


def big() -> lotan.Graph:
    return graph(1, vertices=5_000, edges=9_000)


@pytest.mark.parametrize("regime", [lotan.FullBatch(), lotan.MiniBatch(2048, (3,))], ids=str)
def test_the_estimate_counts_scores_and_a_limit_makes_them_fewer_or_is_refused(regime: Any) -> None:
    job = prepared(regime=regime).job
    without = job.needs(lotan.TrainerConfig()).peak - job.scored.bytes(SCORES)
    assert job.planned.options.peak_bytes == without + job.scored.bytes(SCORES)
    assert job.scored.bytes(SCORES) > 100 * MIB
    with pytest.raises(ConfigurationError, match=r"memory_limit is 10m, .*needs at least") as refused:
        prepared(regime=regime, memory_limit="10m").job  # noqa: B018
    least = re.search(r"needs at least (\d+m)", str(refused.value))[1]
    with pytest.raises(ConfigurationError, match="needs at least"):
        prepared(regime=regime, memory_limit=byte_count("memory_limit", least) - MIB).job  # noqa: B018
    tight = prepared(regime=regime, memory_limit=least)
    assert tight.job.scores == tight.job.scored.least
    assert "for the memory limit" in identity(tight.job, tight.config.settled())["scores at one time"]
    assert "scores at one time" not in identity(job, prepared(regime=regime).config.settled())


MEASURED = """
import sys
from tests.links.test_memory import prepared
run = prepared(memory_limit=sys.argv[1]).fit()
print(run.report["peak_memory_bytes"]["driver"])
"""


@pytest.mark.nightly
def test_a_run_stays_within_the_least_limit() -> None:
    with pytest.raises(ConfigurationError) as refused:
        prepared(memory_limit="10m").job  # noqa: B018
    least = re.search(r"needs at least (\d+m)", str(refused.value))[1]
    done = subprocess.run([sys.executable, "-c", MEASURED, least], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) <= byte_count("memory_limit", least)
