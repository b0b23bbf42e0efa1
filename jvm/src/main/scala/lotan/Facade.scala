package lotan

import java.util

import scala.jdk.CollectionConverters._

import org.apache.spark.api.java.JavaRDD
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.DataFrame
import org.apache.spark.storage.StorageLevel

import lotan.messenger.{Dealers, Endpoint, Settings}

/** The methods that the Python side may call. Its other half is `lotan/engines/blocks/facade.py`; a test compares the names. */
object Facade {

  /** Returns the version of this jar, which Python compares with the package's. */
  def version(): String = Version.read()

  /** Makes blocks of a graph's tables, as `Load` describes it. `weight` and `data` are null if edges have none, and `turned` is
    * true if steps read edge sets with their ends exchanged.
    */
  def load(
      vertices: DataFrame,
      edges: DataFrame,
      partitions: Int,
      columns: util.List[String],
      weight: String,
      data: String,
      dataWidth: Int,
      turned: Boolean
  ): LoadedGraph = {
    val ofEdges = Load(partitions, columns.asScala.toSeq, Option(weight), data = Option(data), dataWidth = dataWidth)
    ofEdges.copy(turned = turned)(vertices, edges)
  }

  /** Returns a loaded column, which is freed with its graph. */
  def column(graph: LoadedGraph, name: String): RDD[Rows] =
    graph.columns.getOrElse(
      name,
      throw new IllegalArgumentException(
        s"no column '$name' was loaded; there are ${graph.columns.keys.toSeq.sorted.mkString(", ")}"
      )
    )

  /** Returns the graph with vertices in the order of their levels (`LevelOrder`). The given graph is closed, even on failure. */
  def orderByLevel(graph: LoadedGraph, deepest: Int, allSplits: Boolean): LoadedGraph =
    LevelOrder(deepest, allSplits)(graph)

  /** Returns the lowest level of each partition that has vertices (`Block.nearest`), with one job. */
  def nearest(graph: LoadedGraph): util.Map[Integer, Integer] = {
    val found = graph.blocks.flatMap(block => block.nearest.map(block.partition -> _)).collect()
    found.map { case (partition, level) => Integer.valueOf(partition) -> Integer.valueOf(level) }.toMap.asJava
  }

  /** Sums along edges, as `Propagate` describes it. The result is lazy. The caller persists `column`.
    *
    * @param within
    *   level, as `made`; -1: all vertices
    * @param shuffled
    *   by a shuffle even where all partitions are in one JVM; the result is the same
    */
  def propagate(
      graph: LoadedGraph,
      column: RDD[Rows],
      edges: String,
      weighted: Boolean,
      reverse: Boolean,
      within: Int,
      made: Int,
      shuffled: Boolean
  ): RDD[Rows] = {
    val step = Propagate(EdgeSet(edges), weighted, reverse, within, made)
    step(graph.along(step.edges), column, shared(graph, shuffled), spread(graph, step.edges, within))
  }

  /** Puts a column into files, for `propagateInTurn`. The result is lazy. The caller persists both, and releases the result. */
  def files(column: RDD[Rows]): RDD[ColumnFile] = ColumnFile.of(column)

  /** Does `propagate` in one JVM with few rows in hand at a time (`InTurn`). The result is the same. */
  def propagateInTurn(
      graph: LoadedGraph,
      column: RDD[Rows],
      files: RDD[ColumnFile],
      edges: String,
      weighted: Boolean,
      reverse: Boolean,
      within: Int,
      made: Int
  ): RDD[Rows] = {
    val step = Propagate(EdgeSet(edges), weighted, reverse, within, made)
    val inTurn = InTurn(step, spread(graph, step.edges, within))
    inTurn(graph.along(step.edges), graph.edgesOf(inTurn), column, files)
  }

  /** Returns true if hubs are spread. They are not in sums over some of the edges, of which hubs may have few. */
  private def spread(graph: LoadedGraph, edges: EdgeSet, within: Int) =
    graph.hubs && within == Block.All && edges.relation.isEmpty && !edges.reversed

  private def shared(graph: LoadedGraph, shuffled: Boolean) = !shuffled && graph.blocks.sparkContext.isLocal

  /** Does `propagate` with rows that are computed when a pipe reads them, for a column that one pipe reads once. */
  def sums(
      graph: LoadedGraph,
      column: RDD[Rows],
      edges: String,
      weighted: Boolean,
      reverse: Boolean,
      within: Int,
      made: Int
  ): RDD[RowReader] = {
    val step = Propagate(EdgeSet(edges), weighted, reverse, within, made)
    step.asRead(graph.along(step.edges), column, spread(graph, step.edges, within))
  }

  /** Returns what each partition has of a reduction over all vertices (`Total`). The caller persists the result; `scale` may be
    * null.
    */
  def totalParts(graph: LoadedGraph, column: RDD[Rows], scale: RDD[Rows], kind: String): RDD[TotalPart] =
    Total(kind).parts(graph.blocks, column, Option(scale))

  /** Reduces a column over all vertices, for every vertex, as `Total` describes it. */
  def total(graph: LoadedGraph, parts: RDD[TotalPart], kind: String, shuffled: Boolean): RDD[Rows] =
    Total(kind)(graph.blocks, parts, shared(graph, shuffled))

  /** Does `total` with rows that exist when a pipe reads them, for a column that pipes alone read. */
  def repeated(graph: LoadedGraph, parts: RDD[TotalPart], kind: String, shuffled: Boolean): RDD[RowReader] =
    Total(kind).asRead(graph.blocks, parts, shared(graph, shuffled))

  /** Returns what each partition has of the gradient of a reduction (`TotalGradient.parts`). The caller persists the result. */
  def totalGradientParts(graph: LoadedGraph, gradients: util.List[RDD[RowReader]]): RDD[TotalPart] =
    TotalGradient("sum", 0).parts(graph.blocks, gradients.asScala.toSeq)

  /** Computes the gradient of a column that was reduced over all vertices (`TotalGradient`).
    *
    * @param reduced
    *   for moments the column and its reduction, else empty
    * @param scale
    *   null if rows were not scaled
    */
  def totalGradient(
      graph: LoadedGraph,
      parts: RDD[TotalPart],
      kind: String,
      vertices: Long,
      reduced: util.List[RDD[RowReader]],
      scale: RDD[Rows],
      plus: util.List[RDD[RowReader]],
      shuffled: Boolean
  ): RDD[Rows] = {
    val x = Option.when(!reduced.isEmpty)((reduced.get(0), reduced.get(1)))
    val others = plus.asScala.toSeq
    TotalGradient(kind, vertices)(graph.blocks, parts, x, Option(scale), others, shared(graph, shuffled))
  }

  /** Returns the column `in_degree`, `in_degree@<edge set>` or `gcn_scale@<edge set>` (`Degrees`), which is cheap if it is
    * persisted.
    */
  def degrees(graph: LoadedGraph, name: String, weighted: Boolean): RDD[Rows] = name.split('@') match {
    case Array("in_degree") => Degrees.inDegree(graph.blocks)
    case Array("in_degree", edges) => Degrees.inDegree(along(graph, edges), EdgeSet(edges))
    case Array("gcn_scale", edges) => Degrees.gcnScale(along(graph, edges), EdgeSet(edges), weighted)
    case _ => throw new IllegalArgumentException(s"no static column follows from edges alone by the name '$name'")
  }

  /** Returns the chunks of every partition (`Collect`), of vertices within a level or, for -1, of all vertices. */
  def collect(
      graph: LoadedGraph,
      edges: String,
      chunkRows: Int,
      keyed: Boolean,
      within: Int,
      columns: util.List[String],
      typed: Boolean,
      ordered: Boolean
  ): RDD[Array[Neighbourhood]] = {
    val layout = EdgeLayout(typed, ordered)
    Collect(EdgeSet(edges), chunkRows, keyed, within, columns.asScala.toSeq.map(EdgeColumn(_)), layout)(graph)
  }

  /** Computes the adjoint of `collect` (`Gather`). -1 in place of the level `made` stands for all vertices. */
  def gather(
      graph: LoadedGraph,
      edges: String,
      contributions: RDD[Array[Rows]],
      width: Int,
      made: Int
  ): RDD[Rows] = Gather(width, made)(along(graph, edges), contributions)

  // The steps below are about the edges that end `within` a level, and their outputs have rows for vertices or edges within
  // the level `made`: see `EdgeScope`. -1 in place of a level: all.

  /** Brings the rows of a column to the edges that read them at their sources (`SourceRows`). The caller persists `column`. */
  def sources(
      graph: LoadedGraph,
      edges: String,
      column: RDD[Rows],
      within: Int,
      shuffled: Boolean
  ): RDD[SourceRows] = SourceRows(along(graph, edges), column, shared(graph, shuffled), within)

  /** Returns the row keys of edges (`EdgeKeys`). */
  def edgeKeys(graph: LoadedGraph, edges: String): RDD[Array[Long]] = EdgeKeys(EdgeSet(edges))(along(graph, edges))

  /** Computes an edge column (`EdgeExpression`). The function is text, which `EdgeFunction.parse` reads. */
  def edgeExpression(
      graph: LoadedGraph,
      edges: String,
      within: Int,
      made: Int,
      function: String,
      width: Int,
      sources: util.List[RDD[SourceRows]],
      destinations: util.List[RDD[Rows]],
      columns: util.List[RDD[Rows]]
  ): RDD[Rows] = EdgeExpression(scope(edges, within, made), EdgeFunction.parse(function), width)(
    along(graph, edges),
    sources.asScala.toSeq,
    destinations.asScala.toSeq,
    columns.asScala.toSeq
  )

  /** Normalises an edge column over in-edges (`SegmentSoftmax`). */
  def segmentSoftmax(graph: LoadedGraph, edges: String, within: Int, made: Int, scores: RDD[Rows]): RDD[Rows] =
    SegmentSoftmax(scope(edges, within, made))(along(graph, edges), scores)

  /** Computes the adjoint of the softmax (`SegmentSoftmaxGradient`). */
  def segmentSoftmaxGradient(
      graph: LoadedGraph,
      edges: String,
      within: Int,
      made: Int,
      softmax: RDD[Rows],
      gradient: RDD[Rows]
  ): RDD[Rows] = SegmentSoftmaxGradient(scope(edges, within, made))(along(graph, edges), softmax, gradient)

  /** Drops numbers of an edge column (`EdgeDropout`). */
  def edgeDropout(
      graph: LoadedGraph,
      edges: String,
      within: Int,
      made: Int,
      keys: RDD[Array[Long]],
      column: RDD[Rows],
      state: Long,
      threshold: Int
  ): RDD[Rows] = EdgeDropout(scope(edges, within, made), state, threshold)(along(graph, edges), keys, column)

  /** Sums an edge column for every vertex (`EdgeSum`). */
  def edgeSum(
      graph: LoadedGraph,
      edges: String,
      within: Int,
      made: Int,
      column: RDD[Rows],
      width: Int,
      bySource: Boolean,
      shuffled: Boolean
  ): RDD[Rows] =
    EdgeSum(scope(edges, within, made), bySource)(along(graph, edges), column, width, shared(graph, shuffled))

  /** Sums along edges, scaled by an edge column (`ScaledPropagate.forward`). */
  def scaledPropagate(
      graph: LoadedGraph,
      edges: String,
      within: Int,
      made: Int,
      sources: RDD[SourceRows],
      scales: RDD[Rows],
      heads: Int
  ): RDD[Rows] = ScaledPropagate(scope(edges, within, made), heads).forward(along(graph, edges), sources, scales)

  /** Computes the adjoint of the scaled sums (`ScaledPropagate.reverse`). */
  def scaledPropagateReverse(
      graph: LoadedGraph,
      edges: String,
      within: Int,
      made: Int,
      column: RDD[Rows],
      scales: RDD[Rows],
      heads: Int,
      width: Int,
      shuffled: Boolean
  ): RDD[Rows] = {
    val step = ScaledPropagate(scope(edges, within, made), heads)
    step.reverse(along(graph, edges), column, scales, width, shared(graph, shuffled))
  }

  /** Computes the dot products of both ends' rows (`EdgeDot`). */
  def edgeDot(
      graph: LoadedGraph,
      edges: String,
      within: Int,
      made: Int,
      sources: RDD[SourceRows],
      destination: RDD[Rows],
      heads: Int
  ): RDD[Rows] = EdgeDot(scope(edges, within, made), heads)(along(graph, edges), sources, destination)

  /** Computes the greatest or least of the sources' rows (`Extreme`). */
  def extreme(
      graph: LoadedGraph,
      edges: String,
      within: Int,
      made: Int,
      sources: RDD[SourceRows],
      greatest: Boolean
  ): RDD[Rows] = Extreme(scope(edges, within, made), greatest)(along(graph, edges), sources)

  /** Computes the shares that the adjoint of `extreme` adds up (`ExtremeGradient.shares`). */
  def extremeShares(
      graph: LoadedGraph,
      edges: String,
      within: Int,
      sources: RDD[SourceRows],
      extreme: RDD[Rows],
      gradient: RDD[Rows]
  ): RDD[Array[Rows]] =
    ExtremeGradient(EdgeScope(EdgeSet(edges), within)).shares(along(graph, edges), sources, extreme, gradient)

  /** Computes the adjoint of `extreme` (`ExtremeGradient`). The caller persists `shares` if all partitions are in one JVM. */
  def extremeGradient(
      graph: LoadedGraph,
      edges: String,
      made: Int,
      shares: RDD[Array[Rows]],
      width: Int,
      shuffled: Boolean
  ): RDD[Rows] = ExtremeGradient(along(graph, edges), shares, width, shared(graph, shuffled), made)

  private def along(graph: LoadedGraph, edges: String) = graph.along(EdgeSet(edges))

  private def scope(edges: String, within: Int, made: Int) = EdgeScope(EdgeSet(edges), within, made)

  /** Runs a stage on all chunks, as `Pipe` describes it. The result is lazy.
    *
    * @param step
    *   the step, as `PipeStep.of` reads it
    * @param columns
    *   those that its fields name, of `Rows`; what no source field names may be of `sums`
    * @param near
    *   for each of its edges, what `collect` gave for the step's level
    */
  def pipe(
      graph: LoadedGraph,
      step: String,
      endpoint: Endpoint,
      settings: Settings,
      columns: util.List[RDD[RowReader]],
      near: util.List[RDD[Array[Neighbourhood]]]
  ): RDD[Piped] = {
    val plain = PipeStep.of(step, endpoint, settings)
    val all = columns.asScala.toSeq
    val sources =
      plain.edges.flatMap(one => one.sources.map(field => graph.along(one.edges) -> all(field.columns.head)))
    val halos = sources.map { case (blocks, column) =>
      Exchange.halo(blocks, column.map(_.asInstanceOf[Rows]), Block.farther(plain.within))
    }
    Pipe(plain)(graph.blocks, all, near.asScala.toSeq, halos)
  }

  /** Returns a column that a pipe has returned for vertices. */
  def output(piped: RDD[Piped], index: Int): RDD[Rows] = piped.map(_.columns(index))

  /** Returns the rows that a pipe has returned for sources. */
  def contributions(piped: RDD[Piped], index: Int): RDD[Array[Rows]] = piped.map(_.contributions(index))

  /** Persists an RDD from its first use until `release`. */
  def persist(column: RDD[_]): Unit = { val _ = column.persist(StorageLevel.MEMORY_AND_DISK) }

  /** Computes columns, all in one job. Only persisted ones stay in memory. */
  def force(columns: util.List[RDD[_]]): Unit = {
    val ends = columns.asScala.toSeq.map(_.asInstanceOf[RDD[AnyRef]])
    ends.head.sparkContext.union(ends).foreach(_ => ())
  }

  /** Returns a column as a table of `id` and `values`. */
  def table(graph: LoadedGraph, column: RDD[Rows]): DataFrame = Table(graph.blocks, column)

  /** Returns the ids of all vertices in the order of their blocks, as a table of pieces (`Pieces`). */
  def ids(graph: LoadedGraph): DataFrame = Pieces.ids(graph.blocks)

  /** Returns for each partition the number of its vertices within a level, with one job. */
  def rowsWithin(graph: LoadedGraph, within: Int): Array[Int] = graph.blocks.map(_.rows(within)).collect()

  /** Returns a column as records of bytes, which at most so many jobs fetch (`Pieces`). */
  def pieces(column: RDD[Rows], jobs: Int): JavaRDD[Array[Byte]] = Pieces(column, jobs)

  /** Returns a table of pieces as a column of vertices within a level or, for -1, of all, lazily (`Attached`). */
  def attach(graph: LoadedGraph, table: DataFrame, width: Int, within: Int): RDD[Rows] =
    Attached(graph.blocks, table, width, within)

  /** Puts learned rows beside the state that an optimizer has of them (`RowUpdate.beside`), lazily. */
  def rowsWithState(rows: RDD[Rows], state: util.List[RDD[Rows]]): RDD[Array[Rows]] =
    RowUpdate.beside(rows, state.asScala.toSeq)

  /** Returns rows as others, each number the same, lazily. */
  def filledRows(like: RDD[Rows], value: Double): RDD[Rows] =
    like.map(rows => new Rows(rows.width, Array.fill(rows.values.length)(value.toFloat)))

  /** Does one step of an optimizer on learned rows (`RowUpdate`), lazily. */
  def updateRows(
      kept: RDD[Array[Rows]],
      gradient: RDD[Array[Rows]],
      optimizer: String,
      numbers: util.Map[String, _]
  ): RDD[Array[Rows]] = RowUpdate.run(RowUpdate(optimizer, numbers), kept, gradient.map(_.head))

  /** Returns one part of learned rows with their state, up to a level; part 0 is the rows (`RowUpdate.part`). */
  def partOfRows(graph: LoadedGraph, kept: RDD[Array[Rows]], place: Int, within: Int): RDD[Rows] =
    RowUpdate.part(graph.blocks, kept, place, within)

  /** Returns the sum of squares of a gradient that is kept, by one job (`RowUpdate.squares`). */
  def squares(gradient: RDD[Array[Rows]]): Double = RowUpdate.squares(gradient.map(_.head))

  /** Persists what no lineage can compute again, from its first use until `release`. Of executors, two have a copy each. */
  def keep(kept: RDD[Array[Rows]]): Unit = {
    val alone = kept.sparkContext.isLocal
    val _ = kept.persist(if (alone) StorageLevel.MEMORY_AND_DISK else StorageLevel.MEMORY_AND_DISK_2).localCheckpoint()
  }

  /** Unpersists an RDD, and deletes its files. */
  def release(column: RDD[_]): Unit = {
    val _ = column.unpersist(blocking = false)
    ColumnFile.delete(column)
  }

  /** Returns the Router's endpoint for `messenger.Dealers`. The keys are null if the Router uses none. */
  def endpoint(address: String, server: String, public: String, secret: String): Endpoint =
    Endpoint.of(address, server, public, secret)

  /** Returns the messenger's settings, which have the names that they have in Python. */
  def messengerSettings(values: util.Map[String, _]): Settings = Settings.of(values)

  /** Closes this JVM's connections for a run that has ended; those of other runs stay. */
  def disconnect(run: String): Unit = {
    Dealers.close(run)
    SpentColumns.forget(run)
  }

  /** Frees a graph's blocks and columns. */
  def close(graph: LoadedGraph): Unit = graph.close()
}
