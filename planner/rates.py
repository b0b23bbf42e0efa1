"""The seconds that a unit of work takes, for each engine.

Rates of the group "fixed" are seconds on the clock. All others are seconds of one processor, because such work is
shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Rates:
    """Seconds for each unit of `planner.work.Work`, whose fields define the units."""

    passes: float = 0.0  # seconds a pass
    steps: float = 0.0  # seconds a step and wave
    pipes: float = 0.0  # seconds a stage's run and wave
    calls: float = 0.0  # seconds a call
    driver_bytes: float = 0.0  # seconds a byte
    edges: float = 0.0  # seconds an edge
    summed_numbers: float = 0.0  # seconds a number
    far_numbers: float = 0.0  # seconds a number
    edge_values: float = 0.0  # seconds a number and operation
    scaled_numbers: float = 0.0  # seconds a number
    extreme_numbers: float = 0.0  # seconds a number
    collected_numbers: float = 0.0  # seconds a number
    shuffled_bytes: float = 0.0  # seconds a byte
    filed_bytes: float = 0.0  # seconds a byte
    piped_bytes: float = 0.0  # seconds a byte
    multiply_adds: float = 0.0  # seconds a multiplication with its addition
    product_numbers: float = 0.0  # seconds a number
    numbers: float = 0.0  # seconds a number
    draws: float = 0.0  # seconds a random number
    autograd_numbers: float = 0.0  # seconds a number
    parameter_numbers: float = 0.0  # seconds a number
    spilled_bytes: float = 0.0  # seconds a byte


LOCAL = Rates(
    passes=0.00055,
    steps=1e-06,
    pipes=9.9e-07,
    calls=4e-05,
    driver_bytes=1e-08,
    edges=6.6e-09,
    summed_numbers=1e-11,
    far_numbers=2.1e-10,
    edge_values=2.7e-09,
    scaled_numbers=3.3e-10,
    extreme_numbers=2.5e-09,
    collected_numbers=1.7e-09,
    shuffled_bytes=2e-09,
    filed_bytes=5e-10,
    piped_bytes=1.1e-11,
    multiply_adds=2.2e-11,
    product_numbers=7.1e-10,
    numbers=4.8e-10,
    draws=7e-10,
    autograd_numbers=1.4e-09,
    parameter_numbers=1.2e-09,
    spilled_bytes=1.7e-09,
)
BLOCKS = Rates(
    passes=0.039,
    steps=0.0042,
    pipes=0.0086,
    calls=0.00012,
    driver_bytes=1e-08,
    edges=2.1e-09,
    summed_numbers=4.8e-10,
    far_numbers=2e-10,
    edge_values=5.1e-09,
    scaled_numbers=3.1e-10,
    extreme_numbers=2.5e-09,
    collected_numbers=1e-09,
    shuffled_bytes=2e-09,
    filed_bytes=1e-09,
    piped_bytes=7.7e-10,
    multiply_adds=3.5e-11,
    product_numbers=4.1e-10,
    numbers=6.3e-10,
    draws=9.9e-10,
    autograd_numbers=1e-09,
    parameter_numbers=3e-09,
    spilled_bytes=1.4e-09,
)
ROWS = Rates(
    passes=0.11,
    steps=0.17,
    pipes=0.12,
    calls=5.1e-05,
    driver_bytes=1e-08,
    edges=2.2e-07,
    summed_numbers=4.4e-09,
    far_numbers=2e-09,
    edge_values=3e-09,
    scaled_numbers=5e-10,
    extreme_numbers=2.5e-09,
    collected_numbers=8e-08,
    shuffled_bytes=2e-09,
    filed_bytes=5e-10,
    piped_bytes=2.3e-08,
    multiply_adds=2e-11,
    product_numbers=3e-10,
    numbers=3e-10,
    draws=6e-10,
    autograd_numbers=1e-09,
    parameter_numbers=1e-08,
    spilled_bytes=1.7e-09,
)

DEFAULT_RATES: Mapping[str, Rates] = {"local": LOCAL, "blocks": BLOCKS, "rows": ROWS}
"""The rates for machines on which nobody has measured.

They were fitted to all cases of benchmarks/cost_model.py, on 2 cores (AMD EPYC). `blocks` and `rows` were measured
while the machine did other work as well. All were measured before the stages of GAT became kernels, and later quiet
runs take less time there.

The cases do not cover some work: extremes, shuffles, rows of the driver, columns in files on `blocks`, edge columns on
`rows`, and most of a worker's arithmetic on `rows`. Rates for that work are guesses. The one for extremes follows the
processor time of GraphSAGE with "max" on `local`, on 5,000 to 100,000 vertices. The one for files follows that of GCN
within low memory limits, on 300,000 and 1,000,000 vertices. The one for rows of the driver follows the processor time
in which 26 MB went to 100,000 vertices and came back.

The rate of autograd is a compromise for plans that collect. They take 9e-10 while values on edges fit into caches, and
2e-9 beyond, as GAT without `push_down_edges` does on 100,000 vertices. On `blocks` it rests on six such cases, on
`rows` on that one.
"""

_GUESS = Rates(
    passes=1e-3,
    steps=1e-6,
    pipes=1e-6,
    calls=2e-5,
    driver_bytes=1e-8,
    edges=5e-9,
    summed_numbers=1e-10,
    far_numbers=3e-10,
    edge_values=3e-9,
    scaled_numbers=5e-10,
    extreme_numbers=2.5e-9,
    collected_numbers=1e-9,
    shuffled_bytes=2e-9,
    filed_bytes=1e-9,
    piped_bytes=1e-11,
    multiply_adds=2e-11,
    product_numbers=3e-10,
    numbers=3e-10,
    draws=6e-10,
    autograd_numbers=1e-9,
    parameter_numbers=1e-9,
    spilled_bytes=1.7e-9,
)
_ON_SPARK = replace(_GUESS, passes=0.08, steps=0.004, pipes=0.012, calls=1e-4, edges=2e-9, summed_numbers=3e-10,
                    far_numbers=2e-10, edge_values=4e-9, scaled_numbers=3e-10, piped_bytes=2e-9, numbers=5e-10,
                    draws=9e-10, parameter_numbers=3e-9)  # fmt: skip
_BY_ROWS = replace(_GUESS, passes=0.25, steps=0.15, pipes=0.15, calls=5e-5, edges=2e-7, summed_numbers=4e-9,
                   far_numbers=2e-9, collected_numbers=8e-8, piped_bytes=2e-8, parameter_numbers=1e-8)  # fmt: skip
GUESSES: Mapping[str, Rates] = {"local": _GUESS, "blocks": _ON_SPARK, "rows": _BY_ROWS}
"""Rates set by hand, to one digit: roughly what processors and memory of this decade, PyTorch and Spark take.

Fits of DEFAULT_RATES are drawn towards these, and never towards an earlier fit. Otherwise rates that few cases
determine would drift to zero.
"""
