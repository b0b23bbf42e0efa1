"""The preparation of a link task that trains from a disk: its links are read part by part, and no row is in memory yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import xxhash

from lotan.engines.choice import idle_settings
from lotan.errors import ConfigurationError, GraphError, ModelError
from lotan.graph.arrays import GraphArrays
from lotan.graph.graph import Graph
from lotan.graph.row_keys import vertex_keys
from lotan.links.decoders import Decoder, decoder_of
from lotan.links.memory import LINK_BYTES, ScoreSizes
from lotan.memory.limit import MemoryLimit
from lotan.memory.mapped import parts
from lotan.planning.batches import plan_of_batch, sampling_of, sampling_with
from lotan.planning.job import Job, described_memory
from lotan.planning.learned import place_of_rows
from lotan.planning.link_seconds import LinkSeconds, changing_seconds, ranking_seconds, scoring_seconds
from lotan.planning.models import edge_demands, hook_notes, model_outputs, takes_roots, traced
from lotan.planning.prepare import plan_for
from lotan.planning.stored_rows import (
    as_if_drawn,
    check_stored_rows,
    learned_modules,
    row_widths,
    states_of_rows,
    storage_place,
)
from lotan.settings.config import TrainerConfig
from lotan.settings.metric_names import main_metric
from lotan.settings.regimes import BATCHES_AHEAD, MiniBatch
from lotan.settings.tasks import ALL, LinkPrediction
from lotan.storage.disk_probe import disk_of
from lotan.storage.divided import partitions_there
from lotan.storage.edge_readers import LinkReader, Summary
from lotan.storage.feature_files import StoredFeatures
from lotan.storage.folder import remote_notes
from lotan.storage.stored import Stored
from lotan.validation.complaints import bad_weights, check_edge_data, not_finite
from lotan.validation.demands import Demands
from planner.chunks import EDGES_READ
from planner.degrees import Degrees
from planner.edge_columns import EdgeData
from planner.explain.sizes import counted
from planner.footprint import Footprint, footprint
from planner.local_memory import batches_bytes, edges_in_files, local_gaps
from planner.loss import LossSpec
from planner.neighbours import orders_neighbours
from planner.orders.disk import LINK_SECONDS, rounded
from planner.orders.division import EDGE_BYTES, EDGE_NUMBER_BYTES, Division, Sizes, divide, divisions, divisions_of
from planner.orders.division import VERTEX_BYTES as SET_VERTEX_BYTES
from planner.regime import Sampling
from planner.scratch import NUMBER_BYTES
from planner.shares import DRIVER_BYTES
from planner.statistics import Profile
from planner.steps.learned_rows import LEARNED_COPIES, learned_bytes

VERTEX_BYTES = 64
"""The bytes of a vertex beside its rows: its id, its key twice, its place, and a label and a split that say nothing."""

READ_BYTES = 96 << 20
"""The bytes that reading links part by part takes, Arrow's own among them. Measured: 60 to 100 MB."""

RANK_READS = 2  # an evaluation reads learned rows for the ends of its links, and to rank them among all


def prepare_stored(
    model: torch.nn.Module,
    graph: Graph,
    config: TrainerConfig,
    decoder: Decoder | None = None,
    earlier: str | None = None,
) -> Job:
    """Read the sizes of the links, trace the model, choose the partitions, and plan a batch.

    Args:
        model: The model: learned rows alone, or layers over learned rows and features.
        graph: The graph, in files or in this process.
        config: The settings of the run, whose order trains from a disk.
        decoder: The decoder of an earlier training of the same model, which goes on; None: a new one.
        earlier: The division of the run that goes on, in words. It is taken again if it fits into the limit; None: a new run.

    Raises:
        GraphError: If the graph or its links cannot be trained on.
        ModelError: If the model cannot be traced, or reads what is not stored in partitions.
        PlanError: If the model cannot be planned, or a rule is unknown.
        ConfigurationError: If the memory limit is too low, or there is none and the order says no sizes.
    """
    task, regime = config.task, config.regime
    assert isinstance(task, LinkPrediction)  # the caller has asked
    assert isinstance(regime, MiniBatch)
    reader = LinkReader(graph, task)
    summary = reader.summary()
    # a graph in files says its width without being read
    width = getattr(model, "in_channels", 0) or graph.estimate().width
    encodes = bool(regime.fanouts)
    vertices = _vertices(reader, summary, width) if encodes else _bare(reader)
    modules = learned_modules(model, required=not encodes)
    main_metric(config.monitor, "link")
    with as_if_drawn(modules, reader.ids):
        train, evaluate = traced(model, width, vertices)
    learned = row_widths(modules)
    check_stored_rows(train, learned, config)
    outputs = model_outputs(evaluate)
    decoder = decoder_of(task, outputs, len(summary.names) or None, config.seed, decoder)
    loss = LossSpec("link", outputs, normalizer=1.0)
    sampling = sampling_of(train, vertices, config)
    assert sampling is not None
    sampling = _sampling(sampling, summary, config)
    statistics = vertices.statistics
    engine, planned, _ = plan_for(train, evaluate, loss, vertices, config, statistics, sampling, limited=False)
    weights = graph.names.weight_words(summary.weighted)
    planned = planned.described(weights=weights, **place_of_rows(config, train))
    job = Job(
        graph=vertices,
        train=train,
        evaluate=evaluate,
        loss=loss,
        statistics=statistics if encodes else replace(statistics, edges=summary.training),
        planned=planned,
        engine=engine,
        warnings=(*graph.notes, *hook_notes(model), *idle_settings(engine.name, config, vertices)),
        decoder=decoder,
    )
    job = replace(job, batch=plan_of_batch(job, sampling, config))
    _check_reads(job, reader, len(summary.names), regime)
    reads_features = any(column.name == "features" for column in job.shown.plan.static_columns)
    features = _features(graph, width) if reads_features else None

    def planned_for(config: TrainerConfig) -> Job:
        drawn = _sampling(sampling, summary, config)
        found = replace(job, batch=plan_of_batch(job, drawn, config))
        found = replace(found, link_seconds=_link_seconds(found, summary, learned, drawn, config))
        stored = _stored(found, reader, summary, learned, features, drawn, config, earlier)
        return replace(found, stored=stored, warnings=(*job.warnings, *remote_notes(stored.folder)))

    return described_memory(planned_for(config), config, planned_for)


def _sampling(sampling: Sampling, summary: Summary, config: TrainerConfig) -> Sampling:
    """Return the sampling of batches of links, whose targets are the ends of their links and the negatives."""
    task, sampling = config.task, sampling_with(sampling, config)
    assert isinstance(task, LinkPrediction)
    negatives = summary.vertices if task.negatives == ALL else int(task.negatives)
    ends = min(summary.vertices, 2 * (min(sampling.batch_size, summary.training) + negatives))
    return replace(sampling, examples=summary.training, targets=ends)


def _bare(reader: LinkReader) -> Graph:
    """Return the vertices as a graph without edges and features."""
    count = len(reader.ids)
    nothing = np.zeros(0, dtype=np.int64)
    return Graph.of_arrays(
        GraphArrays(
            ids=reader.ids,
            features=np.zeros((count, 0), dtype=np.float32),
            label=np.full(count, -1),
            split=np.zeros(count, dtype=np.int8),
            src=nothing,
            dst=nothing,
            weight=None,
        )
    )


def _vertices(reader: LinkReader, summary: Summary, width: int) -> Graph:
    """Return the same with the sizes of the graph along which messages pass. How degrees differ is not known."""
    edges = summary.training * (2 if summary.both_ways else 1)
    even = Degrees.even(summary.vertices, edges)
    bare = _bare(reader)
    data = EdgeData(summary.attributes, bool(summary.names) and not reader.typed, summary.flat)
    profile = Profile(even, even, 1.0)
    return bare.with_statistics(
        replace(
            bare.statistics,
            edges=edges,
            width=width,
            profile=profile,
            edge_data=data,
            in_files=True,
            weighted=summary.weighted,
        )
    )


def _check_reads(job: Job, reader: LinkReader, relations: int, regime: MiniBatch) -> None:
    """Refuse a model that reads what is not stored in partitions."""
    order = f"order {regime.order!r}"
    plan = job.shown.plan
    encodes = bool(regime.fanouts)
    known = {"label", "split", *(["features"] if encodes else [])}
    names = {column.name.partition("@")[0] for column in plan.static_columns}
    more = sorted(names - known - ({"in_degree", "gcn_scale"} if encodes else set()))
    more += ["features as types"] * bool(job.train.bounds)
    more += ["the order of neighbours"] * orders_neighbours(job.train)  # there, vertices lie in another order
    if more:
        mend = "leave it out of the model" if encodes else "give fanouts and layers that read neighbours, leave it out"
        raise ModelError(
            f"{order} trains models of learned rows, and of features with layers that read neighbours, and this one reads "
            f"{', '.join(more)}; {mend}, or leave order out of the regime"
        )
    reads, types = edge_demands(job.train)
    check_edge_data(job.statistics.edge_data, Demands(None, None, None, False, reads))
    if types is not None and types[0] < relations:
        raise GraphError(
            f"edges.relation: the links have {relations} relations, and layer {types[1]!r} of the model was made for {types[0]}. "
            f"Make it for {relations}."
        )
    if reader.negative is not None and takes_roots(job.train):
        raise bad_weights(*reader.negative, negative=True)


def _features(graph: Graph, width: int) -> StoredFeatures:
    """Read the features of a graph part by part into a file, and check them.

    Raises:
        GraphError: If they are not finite, or of another width than the model expects.
    """
    columns = graph.features_in_parts()
    if columns.features.shape[1] != width:
        raise GraphError(
            f"vertices.features: a row has {columns.features.shape[1]} numbers, and the model expects {width}. Give the model "
            f"in_channels={columns.features.shape[1]}, or features of that width."
        )
    digest = xxhash.xxh3_64(np.ascontiguousarray(vertex_keys(columns.ids)).data.cast("B"))
    bad, first = 0, -1
    for some in parts(columns.features):
        rows = np.ascontiguousarray(columns.features[some])
        digest.update(rows.data.cast("B") if rows.size else b"")
        wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        first = int(wrong[0]) + some.start if len(wrong) and first < 0 else first
        bad += len(wrong)
    if bad:
        raise not_finite(bad, columns.ids[first], columns.features[first].tolist())
    order = np.argsort(columns.ids, kind="stable")
    return StoredFeatures(columns.features, order, digest.hexdigest())


def _stored(
    job: Job,
    reader: LinkReader,
    summary: Summary,
    learned: Mapping[str, int],
    features: StoredFeatures | None,
    sampling: Sampling,
    config: TrainerConfig,
    earlier: str | None,
) -> Stored:
    regime, limit = config.regime, MemoryLimit.of(config)
    assert isinstance(regime, MiniBatch)
    states = states_of_rows(config)
    sizes = Sizes(
        vertices=summary.vertices,
        rows=summary.vertices * sum(learned.values()) * NUMBER_BYTES * (1 + states),
        links=summary.record_bytes * summary.training,
        states=states,
        features=0 if features is None else NUMBER_BYTES * features.rows.size,
        messages=job.statistics.edges if regime.fanouts else 0,
        edge_numbers=summary.numbers,
    )
    whole = _evaluation(job, summary, config) if regime.fanouts else None
    fixed = _fixed_bytes(job, summary, sampling, config) + (0 if whole is None else whole.least)
    place = storage_place(config)
    computing = job.batches_seconds + LINK_SECONDS * summary.training
    room = None if limit.bytes is None else limit.bytes - fixed
    there = partitions_there(place, regime.seed)
    division, least, reason = _divided(regime, sizes, room, place, computing, earlier, there)
    if division.partitions > summary.vertices:
        raise ConfigurationError(
            f"order {regime.order!r} has more partitions than the graph has vertices ({summary.vertices:,}); give fewer"
        )
    peak, more = fixed + division.bytes(sizes), 0 if whole is None else whole.peak - whole.least
    spills = limit.bytes is not None and peak + more > limit.bytes  # else the evaluation is in memory
    needed = Footprint("local", peak=peak if spills else peak + more, least=fixed + least)
    return Stored(
        reader=reader,
        summary=summary,
        division=division,
        sizes=sizes,
        learned=learned,
        features=features,
        evaluates_on_disk=spills,
        edges_on_disk=edges_in_files(job.plan, job.statistics),
        states=states,
        footprint=needed,
        seed=regime.seed,
        batch_size=regime.batch_size,
        folder=place,
        reason=reason,
    )


def _divided(
    regime: MiniBatch,
    sizes: Sizes,
    room: int | None,
    place: Path | None,
    computing: float,
    earlier: str | None,
    there: int | None,
) -> tuple[Division, int, str]:
    """Return the division, the bytes of the least one that would do, and the reason for the division in words.

    Args:
        regime: The regime, whose order may say the sizes. Then there is no other division, and no reason.
        sizes: The bytes on the disk.
        room: The bytes in memory for all of it; None: there is no memory limit.
        place: The folder of the partitions; None: a temporary one.
        computing: The estimated seconds of an epoch's batches.
        earlier: The division of the run that goes on, in words; None: a new run.
        there: The number of partitions that the folder has already; None: it has none that could be used.

    Raises:
        ConfigurationError: If neither the order nor a memory limit decides.
    """
    if regime.division is not None:
        return regime.division, regime.division.bytes(sizes), ""
    if room is None:
        raise ConfigurationError(
            f"order {regime.order!r} needs memory_limit, which decides how many partitions are in memory; or give their number, "
            "as in order='comet(partitions=16, buffer=4, groups=8)'"
        )
    order, disk = regime.stored_order, disk_of(place).rounded
    every = divisions(order, sizes, disk.block)
    written = [] if there is None else divisions_of(order, there)
    least = min(one.bytes(sizes) for one in (*every, *written))
    fitting, usable = ([one for one in some if one.bytes(sizes) <= room] for some in (every, written))
    kept = next((one for one in (*fitting, *usable) if str(one) == earlier), None)
    if kept is not None:
        return kept, least, "chosen by the run that goes on"
    number = counted(len(usable or fitting), "division")
    which = f" of the {there} partitions on the disk" if usable else ""
    reason = f"chosen of {number}{which} that fit into the limit, by the estimated seconds of an epoch"
    return divide(order, sizes, room, disk, rounded(computing), there), least, reason


def _link_seconds(
    job: Job, summary: Summary, learned: Mapping[str, int], sampling: Sampling, config: TrainerConfig
) -> LinkSeconds:
    """Return the estimated seconds beside the plan: scores, the rows that they change, and the ranks of an evaluation."""
    task = config.task
    assert isinstance(task, LinkPrediction)
    assert job.batch is not None
    pricing, width, states = job.batch.options.pricing, job.loss.outputs, states_of_rows(config)
    changed = sampling.batches * job.batch.statistics.vertices  # rows of all vertices of a batch
    scoring = scoring_seconds(task, summary.training, sampling.batches, summary.vertices, width, pricing)
    ranking = ranking_seconds(task, summary.validation, summary.vertices, width, pricing)
    reads = RANK_READS * NUMBER_BYTES * summary.vertices * sum(learned.values()) * (summary.validation > 0)
    return LinkSeconds(
        scoring=scoring + changing_seconds(changed, sum(learned.values()), states, pricing),
        ranking=ranking + reads / disk_of(storage_place(config)).bytes_per_second,
    )


def _evaluation(job: Job, summary: Summary, config: TrainerConfig) -> Footprint:
    """Return the estimated bytes of an evaluation on the whole graph, beside those of this process.

    Its peak is that of an evaluation in memory, and its least that of one whose columns and edges lie in files. Learned rows
    lie in a file in either.
    """
    limit, statistics = MemoryLimit.of(config), job.statistics
    layout = limit.layout(job.traits, None)
    found = footprint(job.traits, job.plan, statistics, layout)
    assert found.in_memory is not None  # the engine is in this process
    rows = DRIVER_BYTES + int(local_gaps(job.plan) * LEARNED_COPIES * learned_bytes(job.plan, statistics))
    # if steps need all edges in memory, they are read and sorted at one time
    edges = min(statistics.edges, EDGES_READ) if edges_in_files(job.plan, statistics) else statistics.edges
    of_edge = EDGE_BYTES + EDGE_NUMBER_BYTES * summary.numbers
    read = of_edge * edges + SET_VERTEX_BYTES * statistics.vertices
    least = max(read, min(found.least, found.in_memory) - rows)
    return replace(found, peak=max(least, found.in_memory - rows), least=least)


def _fixed_bytes(job: Job, summary: Summary, sampling: Sampling, config: TrainerConfig) -> int:
    """Return the bytes that do not depend on the partitions: the process, the vertices, batches, and scores."""
    assert job.batch is not None
    limit = MemoryLimit.of(config)
    task = config.task
    assert isinstance(task, LinkPrediction)
    scored = ScoreSizes(
        links=0,
        batch=min(summary.training, sampling.batch_size),
        candidates=summary.vertices if task.negatives == ALL else int(task.negatives),
        rows=sampling.targets or 0,
        vertices=0,
        width=job.loss.outputs,
    )
    layout = limit.layout(job.traits, None)
    held = batches_bytes(job.batch.plan, job.batch.statistics, layout, BATCHES_AHEAD)
    return (
        DRIVER_BYTES
        + READ_BYTES
        + VERTEX_BYTES * summary.vertices
        + held
        + scored.bytes(job.scores)
        + LINK_BYTES * summary.others
    )
