"""Many random cases of `test_random_models`, outside of the suite: models, graphs, and rules left out.

    python -m tests.exactness.offline --cases 20000

Prints how many were run and each that failed, with the seeds that make it again; exits with 1 if one did.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import torch
from tqdm import tqdm

from tests.exactness.test_random_models import check_against_autograd, check_random_numbers, rules_off

GRAPHS = 20  # for each model: most of a case is tracing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000, help="(default: 20000)")
    parser.add_argument("--seed", type=int, default=None, help="of all (default: the time)")
    options = parser.parse_args()
    seed = time.time_ns() if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    torch.set_num_threads(1)
    random, failed = np.random.default_rng(seed), 0
    for number in tqdm(range(options.cases), mininterval=60):
        if number % GRAPHS == 0:
            model = int(random.integers(2**31))
        graph = int(random.integers(2**31))
        off = rules_off(random)
        dropping, general = bool(random.integers(3) == 0), bool(random.integers(4) == 0)
        try:
            if dropping:
                check_random_numbers(model, graph, off)
            else:
                check_against_autograd(model, graph, off, general)
        except Exception as error:
            failed += 1
            print(
                f"model {model}, graph {graph}, off {sorted(off)}, general {general}, draws {dropping}: {error}",
                flush=True,
            )
    print(f"{options.cases} cases, {failed} failed", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
