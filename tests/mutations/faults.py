"""Faults to plant in a copy of the source, each with the tests of `make test` that must find it.

A fault is a piece of text that stands exactly once in the files of a room, and what to write in its place. Files are not
named, so that a fault outlives a move of its file; where the text itself has changed, write the fault anew.
"""

from __future__ import annotations

from dataclasses import dataclass

PLANNER, LOTAN, MESSENGER, SCALA = "planner", "lotan", "messenger", "jvm/src/main/scala"


@dataclass(frozen=True)
class Fault:
    """A fault, and the tests that find it.

    Args:
        room: the folder that has the text.
        old: the text.
        new: what to write in its place.
        tests: ends of paths of test files, or of files with doctests, each perhaps with ::test; for Scala, a suite.
    """

    room: str
    old: str
    new: str
    tests: tuple[str, ...]


LOCAL = ("exactness/test_local.py::test_equals_autograd",)
PRUNING = ("exactness/test_pruning.py::test_equals_autograd",)

PYTHON = {
    # planner
    "a mean is not divided by the degree": Fault(
        PLANNER,
        'return Elementwise("aten.div.Tensor", (total, degree), (), total.output, layer)',
        "return total",
        LOCAL,
    ),
    "what is random is computed once": Fault(
        PLANNER,
        "varies = isinstance(node, (Parameter, Draw, EdgeDropout, LearnedRows))",
        "varies = isinstance(node, (Parameter, EdgeDropout, LearnedRows))",
        ("planner/test_hoist_invariant.py",),
    ),
    "a gradient that another step reads is dropped": Fault(PLANNER, "read |= _gradients_read(live)", "pass", LOCAL),
    "edges of a relation have as many attributes as those of another": Fault(
        LOTAN,
        "own = whole if width == widest else whole[:, :width]",
        "own = whole",
        ("training/test_hetero.py::test_trains_as_in_pyg",),
    ),
    "what two layers share has the name of one": Fault(
        PLANNER,
        "labelled(moved, joined(map(layer_of, group))) if len(group) > 1 else moved",
        "moved",
        ("planner/test_share_subplans.py",),
    ),
    "the gradient of a total is that of the last chunk alone": Fault(
        LOTAN,
        "_folded(column.reshape(len(column), -1).double()) for column in columns",
        "column.reshape(len(column), -1).double()[-1] for column in columns",
        ("exactness/test_norms.py::test_equals_plain_torch",),
    ),
    "pieces of a chunk forget the gradients of totals": Fault(
        LOTAN,
        "else rows.double().sum(0, keepdim=True).float()",
        "else rows[-1:]",
        ("stages/test_pieces.py",),
    ),
    "dimensions are counted as if the rows were first": Fault(
        LOTAN,
        "return dim + 1 if dim < axis else dim",
        "return dim",
        ("tracing/test_sequences.py::test_the_calls_compute_what_the_model_computes",),
    ),
    "an LSTM's last cell is its last output": Fault(
        LOTAN,
        "torch.cat([out, cell.transpose(0, 1)], dim=1)",
        "torch.cat([out, out[:, -1:]], dim=1)",
        ("stages/test_recurrent.py",),
    ),
    "equal messages of a quantile do not share the gradient": Fault(
        LOTAN,
        "weight.unsqueeze(1) / alike.clamp(min=1)",
        "weight.unsqueeze(1) * (alike > 0)",
        ("stages/test_quantile.py",),
    ),
    "neighbours are taken in the order of the rows of a plan": Fault(
        LOTAN,
        "by_source = self.rows[torch.from_numpy(self.src)].argsort(stable=True)",
        "by_source = torch.arange(len(self.src))",
        ("tracing/test_neighbours.py",),
    ),
    "sequences of neighbours end with the last of them": Fault(
        LOTAN,
        "pieces = [(part, steps) for part in torch.arange(len(counts)).split(rows)]",
        "pieces = [(part, max(1, int(counts[part].max()))) for part in torch.arange(len(counts)).split(rows)]",
        ("stages/test_neighbours.py",),
    ),
    "a vertex whose label the model sees counts in the loss": Fault(
        LOTAN,
        'split = split.masked_fill((drawn > 0) & (split == SPLITS.index("train")), -1)',
        "assert drawn is not None",
        ("tracing/test_labels_as_input.py",),
    ),
    "a loss reads the first of several further outputs": Fault(
        LOTAN,
        "at += prod(shape)",
        "at += 0",
        ("training/test_further_outputs.py",),
    ),
    "constants in a model's buffers do not count in its form": Fault(
        LOTAN,
        "plain |= {key: _constant(value) for key, value in module._buffers.items() if value is not None}",
        "pass",
        ("training/test_forms.py",),
    ),
    "a run that goes on keeps its learning rate": Fault(
        LOTAN,
        "group.update({name: given[name] for name in names if name in given})",
        "pass",
        ("training/test_resume_with.py",),
    ),
    "a mean is shifted with the variance": Fault(
        PLANNER,
        "if select.arguments[2] == 1:\n        return moment",
        "if select.arguments[2] == 2:\n        return moment",
        ("exactness/test_norms.py::test_equals_plain_torch",),
    ),
    "a statistic is taken over the vertices that the loss needs": Fault(
        PLANNER,
        "MOST_LEVELS if name in everywhere else int(name in step.hop_away)",
        "int(name in step.hop_away)",
        ("exactness/test_norms.py::test_equals_plain_torch",),
    ),
    "running statistics miss the vertices that are pruned": Fault(
        PLANNER,
        "if isinstance(step, PipeStep) and step.stage in unpruned:",
        "if False:",
        ("exactness/test_norms.py::test_equals_plain_torch",),
    ),
    "the gradient of a variance lacks its factor": Fault(
        LOTAN,
        "(2 * of_variance).float()",
        "of_variance.float()",
        ("exactness/test_norms.py::test_equals_plain_torch",),
    ),
    "every operator is a stage of its own": Fault(
        PLANNER,
        "level[node] = max(map(level.__getitem__, node.children), default=0) + (node in boundaries)",
        "level[node] = max(map(level.__getitem__, node.children), default=0) + 1",
        ("planner/test_plan.py",),
    ),
    "the vertices that a sum reads are not counted in": Fault(PLANNER, "int(name in step.hop_away)", "0", PRUNING),
    "backward goes along the edges": Fault(
        PLANNER, "reverse=True, combine=backward.rgb", "reverse=False, combine=backward.rgb", LOCAL
    ),
    "only the last contribution to a gradient counts": Fault(
        PLANNER,
        "self.gradients.setdefault(of, []).append(part)",
        "self.gradients[of] = [part]",
        LOCAL,
    ),
    "a pass has no cost of its own": Fault(
        PLANNER, 'own = _seconds(PASS, prices)["fixed"]', "own = 0.0", ("planner/cost/test_seconds.py",)
    ),
    "a group has all chunks": Fault(
        PLANNER,
        "return max(1, min(GROUP_ROWS // rows, chunks // LEAST_GROUPS))",
        "return max(1, chunks)",
        ("planner/chunks.py",),
    ),
    "the least memory is that of the greatest heap": Fault(
        PLANNER,
        "least = least_limit(least_heap, layout.crew, layout.saved)",
        "least = least_limit(heap, layout.crew, layout.saved)",
        ("planner/test_footprint.py",),
    ),
    "columns of one size are alive one at a time": Fault(
        PLANNER,
        "lent[size] = max(lent.get(size, 0), alive[size])",
        "lent[size] = size",
        ("planner/test_local_memory.py",),
    ),
    "every vertex has one edge": Fault(
        PLANNER,
        "chances = [1 - (1 - share) * exp(none * out / vertices)",
        "chances = [1 - (1 - share) * exp(none)",
        ("planner/cost/test_degrees.py", "planner/degrees.py"),
    ),
    "sums are held that the epochs do not repay": Fault(
        PLANNER, "return once <= REPAID_BY * in_an_epoch", "return True", ("planner/test_hoist_invariant.py",)
    ),
    "a layer is pruned that spares little": Fault(
        PLANNER, "< (1 - LEAST_SPARED) * sums.layer(None)", "< sums.layer(None)", ("planner/test_prune_vertices.py",)
    ),
    "models always share steps": Fault(
        PLANNER, "return shared if together <= each else", "return shared if True else", ("planner/test_batch.py",)
    ),
    "one sum becomes several without a comparison": Fault(
        PLANNER,
        "return len({node.arguments[0] for node in maps}) < len(maps)",
        "return False",
        ("planner/test_commute_linear.py",),
    ),
    # stages and what stands around them
    "running variances are biased": Fault(
        LOTAN,
        "sums[layer.variance].double() / max(1, vertices - 1)",
        "sums[layer.variance].double() / vertices",
        ("exactness/test_norms.py::test_equals_plain_torch",),
    ),
    "a batch is normalised by the unbiased variance": Fault(
        LOTAN,
        "(squares[0] / vertices - ",
        "(squares[0] / (vertices - 1) - ",
        ("exactness/test_norms.py::test_equals_plain_torch",),
    ),
    "the mean of all steps is that of the last one": Fault(
        LOTAN,
        "1.0 / float(counter) if factor is None else factor",
        "1.0 if factor is None else factor",
        ("exactness/test_norms.py::test_equals_plain_torch",),
    ),
    "a weight's gradient is that of the last chunk": Fault(
        LOTAN,
        "run.sum_of(self.weight).addmm_(gradient.t(), run.values[self.x])",
        "run.sum_of(self.weight).copy_(gradient.t() @ run.values[self.x])",
        ("stages/test_flat.py",),
    ),
    "a bias has the mean gradient": Fault(
        LOTAN,
        "total.add_(gradient.sum(0).view_as(total))",
        "total.add_(gradient.mean(0).view_as(total))",
        ("stages/test_flat.py",),
    ),
    "each head has the whole gradient of a mean": Fault(
        LOTAN, "torch.div(shares, self.heads, out=", "torch.div(shares, 1, out=", ("stages/test_flat.py",)
    ),
    "a kernel writes over what another one still reads": Fault(
        LOTAN, "x not in fixed and last[x] == position and ", "x not in fixed and ", ("stages/test_flat.py",)
    ),
    "what dropout keeps is not scaled": Fault(
        LOTAN, "return LEVELS / (LEVELS - self.threshold)", "return 1.0", ("test_randomness.py",)
    ),
    "a stage forgets on its way which inputs are static": Fault(
        LOTAN, '"static": i.static,', '"static": False,', ("stages/test_codec.py",)
    ),
    "what is multiplied with sparse rows has no gradient": Fault(
        LOTAN,
        "total.add_(_sums(gradient.contiguous(), *self._by_column).t())",
        "pass",
        ("exactness/test_sparse.py::test_equals_autograd",),
    ),
    "vertices of other splits count": Fault(
        LOTAN, "(labelled & (split == split_number))", "(labelled)", ("test_metrics.py",)
    ),
    "all models of a batch draw the numbers of the first": Fault(
        LOTAN,
        "Randomness(self.seeds[model], self.epoch, ",
        "Randomness(self.seeds[0], self.epoch, ",
        ("test_model_batch.py",),
    ),
    # engines
    "a product forgets the weights": Fault(
        LOTAN, "weights = matrix.values()[some] if weighted else None", "weights = None", LOCAL
    ),
    "of a row's entries the last one counts": Fault(
        LOTAN, "sums[:some] += more[:some]", "sums[:some] = more[:some]", ("engines/local/test_edge_columns.py",)
    ),
    "of all groups the last one counts": Fault(
        LOTAN,
        "self._totals[name].add_(part.double()) if self._next else part.double()",
        "part.double()",
        ("engines/local/test_engine.py",),
    ),
    "a softmax has the gradient of an exponential": Fault(
        LOTAN,
        "out[run] -= softmax[run] * mean.index_select(0, block.destinations[run])",
        "pass",
        LOCAL,
    ),
    "columns are held to the end of a pass": Fault(LOTAN, "walk.drop(last_reads)", "pass", ("engines/test_base.py",)),
    "messages on rows have no weight": Fault(
        LOTAN,
        'F.transform(value, lambda number: number * F.col("weight")) if weighted else value',
        "value",
        ("exactness/test_rows.py::test_equals_autograd",),
    ),
    # training
    "the best weights go on being trained": Fault(
        LOTAN,
        "state.best_weights = {name: tensor.clone() for name, tensor in self._kept.items()}",
        "state.best_weights = dict(self._kept)",
        ("test_trainer.py",),
    ),
    "batches stay the same after the elbow": Fault(
        LOTAN,
        "return 1 if fixed and elbow(state.history, state.stopping.monitor) is None else epoch",
        "return 1 if fixed else epoch",
        ("training/test_fixed_batches.py",),
    ),
    "running statistics keep nothing of the step before": Fault(
        LOTAN,
        "buffer.copy_((1 - factor) * buffer.double() + factor * new.view_as(buffer))",
        "buffer.copy_(new.view_as(buffer))",
        ("training/test_batch_norm.py",),
    ),
    "predictions in Spark have ids of another type": Fault(
        LOTAN,
        """schema = f"id {id_type}, prediction {'string' if classes else PREDICTION[task]}\"""",
        """schema = f"id bigint, prediction {'string' if classes else PREDICTION[task]}\"""",
        ("training/test_trainer_blocks.py",),
    ),
    "the steps of learned rows in Spark are not counted": Fault(
        LOTAN,
        "self._steps[name] = number + 1",
        "pass",
        ("test_learned_rows_in_spark.py::test_rows_in_spark_train_as_in_torch",),
    ),
    "a checkpoint of another run is taken": Fault(
        LOTAN, "_check_identity(path, checkpoint.identity, identity)", "pass", ("test_checkpoint.py",)
    ),
    "patience lasts an evaluation longer": Fault(
        LOTAN, "self.waited >= self.patience", "self.waited > self.patience", ("test_early_stopping.py",)
    ),
    "the reverses that are there already are added": Fault(
        LOTAN, "np.flatnonzero(~np.isin(dst * vertices", "np.flatnonzero(np.isin(dst * vertices", ("test_graph.py",)
    ),
    "the ends of edges are exchanged": Fault(
        LOTAN,
        "return self._matrices(self.dst, self.src, (self.ends, self.vertices), slice(None))",
        "return self._reverse",
        LOCAL,
    ),
    "the weight of a self-loop is forgotten": Fault(LOTAN, "added[had] = values[self.chosen[had]]", "pass", LOCAL),
    "vertices weigh alike in gradients": Fault(
        LOTAN,
        "gradient = gradient.mul_(weight.index_select(0, rows)[:, None])",
        "pass",
        ("training/test_vertex_weights.py",),
    ),
    "vertices weigh alike in the mean": Fault(
        LOTAN,
        "terms if of_vertex is None else terms * of_vertex",
        "terms + 0 * terms",
        ("training/test_vertex_weights.py",),
    ),
    "a penalty has no gradient": Fault(
        LOTAN, "return added, value.item()", "return dict(gradients), value.item()", ("training/test_penalty.py",)
    ),
    "a graph convolution forgets the weights": Fault(
        LOTAN,
        'out_channels]."""\n        return x_j * edge_weight.unsqueeze(-1)',
        'out_channels]."""\n        return x_j',
        ("nn/test_gcn_conv.py",),
    ),
    "the shortest name of a group holds": Fault(
        LOTAN, 'key=len, default="")', 'key=lambda name: -len(name), default="")', ("test_optimizers.py",)
    ),
    "a schedule begins anew where a run is resumed": Fault(
        LOTAN, "schedule.load(checkpoint.schedule)", "pass", ("training/test_schedules.py",)
    ),
    "a schedule takes two steps in an epoch": Fault(
        LOTAN,
        "self.state.schedule.after_step()",
        "[self.state.schedule.after_step() for _ in range(2)]",
        ("training/test_schedules.py",),
    ),
    "class weights by class are taken in order": Fault(
        LOTAN,
        "named.get(number, 1.0) for number",
        "[*named.values(), 1, 1][number] for number",
        ("training/test_losses.py",),
    ),
    "unknown entries count in the mean": Fault(
        LOTAN, "counted = known.sum(1) if", "counted = known.sum(1) * 0 + loss.outputs if", ("stages/test_metrics.py",)
    ),
    "unknown entries are wrong predictions": Fault(
        LOTAN, "(logits > _cuts(loss)) & known", "logits > _cuts(loss)", ("stages/test_metrics.py",)
    ),
    "partly unknown labels are sent as none": Fault(
        LOTAN,
        "missing=np.isnan(label).all(axis=1)",
        "missing=np.isnan(label).any(axis=1)",
        ("training/test_losses.py",),
    ),
    "chances are those of the other outcome": Fault(
        LOTAN, "drawn >= threshold_of(1 - p)", "drawn >= threshold_of(p)", ("test_randomness.py",)
    ),
    "ties count whole": Fault(LOTAN, "(below + others / 2)", "(below + others)", ("stages/test_metrics.py",)),
    "a traced loss forgets the class weights": Fault(
        LOTAN,
        "terms if of_row is None else terms * of_row",
        "terms if of_row is None else terms + 0 * of_row",
        ("stages/test_losses.py",),
    ),
    # messenger
    "the last commit wins": Fault(
        MESSENGER,
        "first = self._commits.setdefault(job, commit)",
        "first = self._commits[job] = commit",
        ("messenger/test_pipe.py",),
    ),
    "a commit of an earlier epoch counts": Fault(
        MESSENGER, "if job.pass_number != self.pass_number(job.run):", "if False:", ("messenger/test_pipe.py",)
    ),
    "corrupted tensors are taken": Fault(
        MESSENGER, "if checksum(data) != envelope.checksum:", "if False:", ("messenger/test_frames.py",)
    ),
    "a chunk may come twice": Fault(
        MESSENGER, "if chunk.index <= self._last:", "if chunk.index < self._last:", ("messenger/test_dealer.py",)
    ),
    "partitions move for nothing": Fault(
        MESSENGER, "load[current] - load[best] >= 2", "load[current] - load[best] >= 0", ("messenger/test_pipe.py",)
    ),
    "an old tensor is taken for a new one": Fault(
        MESSENGER, "if kept is None or kept.offer != offer:", "if kept is None:", ("messenger/test_pipe.py",)
    ),
    "an old row is taken for a new one": Fault(
        MESSENGER,
        "return (self._keys[at] == keys) & (self._checksums[places] == checksums), places",
        "return self._keys[at] == keys, places",
        ("messenger/test_kept_rows.py",),
    ),
    "free bytes never grow together": Fault(
        MESSENGER,
        "if position and self._free[position - 1][1] == start:",
        "if False:",
        ("messenger/test_shared_memory.py",),
    ),
    "a Router listens to the world without keys": Fault(
        MESSENGER, "if keys is None and scheme ==", "if False and scheme ==", ("messenger/test_pieces.py",)
    ),
    "a worker counts no chunks": Fault(MESSENGER, "self._count += 1", "pass", ("messenger/test_pipe.py",)),
    "sums are of float32": Fault(
        MESSENGER,
        "self.tensors[name] = tensor.astype(np.float64)",
        "self.tensors[name] = tensor.astype(np.float32)",
        ("messenger/test_pipe.py",),
    ),
    "a Dealer sends more than it has credit for": Fault(
        MESSENGER,
        "while max(len(self._stream.in_flight), len(self._stream.ready)) < self._connection.welcome.credits:",
        "while len(self._stream.ready) < self._connection.welcome.credits:",
        ("messenger/test_pipe.py",),
    ),
}

JVM = {
    "learned rows beyond the gradient do not move": Fault(
        SCALA,
        "while (i < rows.length) {\n      val own",
        "while (i < known) {\n      val own",
        ("lotan.RowUpdateSuite",),
    ),
    "self-loops stay, and nothing else": Fault(
        SCALA, "columns(edge) != rowOf(edge)", "columns(edge) == rowOf(edge)", ("lotan.CsrSuite",)
    ),
    "the gradient of a variance is half of what it is": Fault(
        SCALA,
        "numbers.map(i => (2 * gradient(i + 1) / vertices).toFloat).toArray",
        "numbers.map(i => (gradient(i + 1) / vertices).toFloat).toArray",
        ("lotan.TotalGradientSuite",),
    ),
    "the parts of a variance miss the distance of their means": Fault(
        SCALA,
        "squares(i) + next.squares(i) + apart(i) * apart(i) * count * share",
        "squares(i) + next.squares(i)",
        ("lotan.TotalSuite",),
    ),
    "a softmax overflows": Fault(
        SCALA,
        "greatest = math.max(greatest, x(i))",
        "greatest = 0f",
        ("lotan.SegmentSoftmaxSuite",),
    ),
    "edges turned round are the edges as they are": Fault(
        SCALA,
        'val ends = Seq(col("dst").as("src"), col("src").as("dst"))',
        'val ends = Seq(col("src"), col("dst"))',
        ("lotan.TurnedSuite",),
    ),
    "a vertex without in-edges has degree 0": Fault(
        SCALA,
        "math.max(1.0, total(set, row, weighted = false)).toFloat",
        "total(set, row, weighted = false).toFloat",
        ("lotan.DegreesSuite",),
    ),
    "free bytes never grow together in Java": Fault(
        SCALA,
        "if (before != null && before.getValue == from) from = before.getKey",
        "if (before != null && before.getValue < 0) from = before.getKey",
        ("lotan.messenger.ExtentsSuite",),
    ),
    "sums of float64 have only their first term": Fault(
        SCALA, "values(i) += more(i)", "values(i) += 0 * more(i)", ("lotan.messenger.SumsSuite",)
    ),
}
