"""The orders in which a graph that is partly in memory is trained on: what is in memory when, and what is trained meanwhile.

A graph lies on a disk in p partitions of vertices. An edge from partition a to partition b is in the bucket (a, b). At
most c partitions are in memory at one time. An order has the sets of partitions that are in memory, one after the other,
and for each set the examples that are trained while it is there. All orders are pure functions.

| order | examples | reads of an epoch |
|---|---|---|
| `comet` | edges | few, and batches that mix many partitions |
| `beta` | edges | as `comet` with groups of one; batches all touch the partition that was read last |
| `hilbert` | edges | many; to compare with |
| `cached_nodes` | vertices | none inside an epoch |
| `each_once` | vertices | each partition once |
"""
