"""Many random cases of `test_random_models`, outside of the suite: models, graphs, and rules left out.

    python -m tests.exactness.offline --cases 20000
    python -m tests.exactness.offline --cases 20000 --float32            as many of plain autograd, to set beside that
    python -m tests.exactness.offline --case 406052739 221293894 --off push_down_edges reuse_evaluation      one of them

Prints how many were run and each that failed, with the seeds that make it again; exits with 1 if one did.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from unittest.mock import patch

import numpy as np
import torch
from tqdm import tqdm

from planner import RULE_NAMES
from tests.exactness import test_random_models
from tests.exactness.test_random_models import (
    check_against_autograd,
    check_float32_autograd,
    check_random_numbers,
    rules_off,
)

GRAPHS = 20  # for each model: most of a case is tracing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000, help="(default: 20000)")
    parser.add_argument("--seed", type=int, default=None, help="of all (default: the time)")
    parser.add_argument("--float32", action="store_true", help="plain autograd in our place, of those without dropout")
    one = parser.add_argument_group("one case, as a failed one was printed")
    one.add_argument("--case", type=int, nargs=2, metavar=("MODEL", "GRAPH"), help="by their seeds")
    one.add_argument("--off", nargs="*", default=[], metavar="RULE", choices=RULE_NAMES, help="rules left out")
    one.add_argument("--general", action="store_true", help="an engine that can do no more than the paper's")
    one.add_argument("--draws", action="store_true", help="a model that draws random numbers")
    one.add_argument("--dense", action="store_true", help="no features that are mostly zeros, as before seed 601")
    options = parser.parse_args()
    if options.case:
        return one_case(*options.case, options)
    seed = time.time_ns() if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    torch.set_num_threads(1)
    random, ran, failed = np.random.default_rng(seed), 0, 0
    for number in tqdm(range(options.cases), mininterval=60):
        if number % GRAPHS == 0:
            model = int(random.integers(2**31))
        graph = int(random.integers(2**31))
        off = rules_off(random)
        dropping, general = bool(random.integers(3) == 0), bool(random.integers(4) == 0)
        if dropping and options.float32:
            continue
        ran += 1
        try:
            check(model, graph, off, general, dropping, options.float32)
        except Exception as error:
            failed += 1
            print(
                f"model {model}, graph {graph}, off {sorted(off)}, general {general}, draws {dropping}: {error}",
                flush=True,
            )
    print(f"{ran} cases, {failed} failed", flush=True)
    return int(failed > 0)


def check(model: int, graph: int, off: set[str], general: bool, dropping: bool, float32: bool) -> None:
    """One case, by what it is compared with."""
    if float32:
        check_float32_autograd(model, graph)
    elif dropping:
        check_random_numbers(model, graph, off)
    else:
        check_against_autograd(model, graph, off, general)


def one_case(model: int, graph: int, options: argparse.Namespace) -> int:
    """Whether it fails, and by how much."""
    graph_of = partial(test_random_models.graph_of, sparse=not options.dense)
    with patch.object(test_random_models, "graph_of", graph_of):
        try:
            check(model, graph, set(options.off), options.general, options.draws, options.float32)
        except AssertionError as error:
            print(error)
            return 1
    print("equal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
