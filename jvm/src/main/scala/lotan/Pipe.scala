package lotan

import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD

import lotan.messenger.{
  Bytes,
  ComputedFloats,
  Dealers,
  Floats,
  Longs,
  MessengerError,
  Numbers,
  OutgoingChunk,
  PickedFloats,
  PipeJob,
  ReturnedChunk,
  Tensor
}

/** A partition could not be piped. Python reads the reason's type and text from this error (`lotan/engines/action.py`). */
final class PipeFailed(reason: MessengerError)
    extends RuntimeException(s"${reason.getClass.getSimpleName}: ${reason.getMessage}")

/** The results of a stage for a partition.
  *
  * @param columns
  *   the columns that were returned for vertices, in order
  * @param contributions
  *   the sums of the rows that were returned for sources, in order: each by owner, see `ContributionSums`
  */
final class Piped(val columns: Array[Rows], val contributions: Array[Array[Rows]]) extends Serializable

/** Sends a partition through a worker, chunk by chunk, and assembles the results.
  *
  * A task may run twice, also at the same time: the messenger counts a partition once, and both attempts get the same rows.
  */
final case class Pipe(step: PipeStep) {

  /** @param blocks
    *   the vertices
    * @param columns
    *   the columns that the step's fields name
    * @param near
    *   for each of the step's edges the chunks of `Collect.neighbourhoods`
    * @param halos
    *   for each source field of the step's edges, in order, the halo of its column
    */
  def apply(
      blocks: RDD[Block],
      columns: Seq[RDD[_ <: RowReader]],
      near: Seq[RDD[Array[Neighbourhood]]],
      halos: Seq[RDD[Array[Array[Float]]]]
  ): RDD[Piped] = {
    val all = Seq[RDD[_]](blocks) ++ columns ++ near ++ halos
    val partitions = blocks.getNumPartitions
    val delayed = (fetch: () => AnyRef) => new LaterRows(() => fetch().asInstanceOf[RowReader])
    new SideBySide[AnyRef](all.map(_.asInstanceOf[RDD[AnyRef]]), step.delayed.map(_ + 1), delayed).map { found =>
      val (own, rest) = found.tail.splitAt(columns.length)
      val (edges, far) = rest.splitAt(near.length)
      val input = new PipeInput(
        step,
        found.head.asInstanceOf[Block],
        own.map(_.asInstanceOf[RowReader]),
        edges.map(_.asInstanceOf[Array[Neighbourhood]]),
        far.map(_.asInstanceOf[Array[Array[Float]]])
      )
      val piped = partition(input)
      SpentColumns.piped(step, input.block.partition, partitions)
      piped
    }
  }

  private def partition(input: PipeInput): Piped = {
    val output = new PipeOutput(step, input)
    if (input.count > 0) send(input, output)
    output.piped
  }

  private def send(input: PipeInput, output: PipeOutput): Unit = {
    val job = PipeJob(step.run, step.number, step.stage, step.mode, input.block.partition, step.accumulates)
    val task = Option(TaskContext.get())
    val results =
      Dealers.pipe(step.endpoint, step.settings, job, input.chunks, () => task.exists(_.isInterrupted()))
    try results.foreach(output.take)
    catch { case error: MessengerError => throw new PipeFailed(error) }
    finally results.close()
  }
}

/** The chunks of a partition that are sent. */
final private class PipeInput(
    step: PipeStep,
    val block: Block,
    columns: Array[RowReader],
    near: Array[Array[Neighbourhood]],
    halos: Array[Array[Array[Float]]]
) {
  private val summed = step.fields.map(field => sum(field.columns.map(columns)))

  /** The number of vertices on which the step runs. */
  val count: Int = block.rows(step.within)

  val chunkCount: Int = (count + step.chunkRows - 1) / step.chunkRows

  for (chunks <- near)
    require(chunks.length == chunkCount, s"in-edges of ${chunks.length} chunks for $chunkCount of ${step.stage}")

  private val known = block.chunks(step.chunkRows, count)

  def digest(chunk: Int): Long = known.digests(chunk)

  /** Distinct sources of a chunk along the step's edges of that place. */
  def sources(edges: Int, chunk: Int): Int = near(edges)(chunk).sources.length

  /** Sums for the sources of the chunks along the step's edges of that place. */
  def sums(edges: Int, width: Int): ContributionSums =
    new ContributionSums(block.partition, block.count, block.partitions, near(edges), width)

  def first(chunk: Int): Int = chunk * step.chunkRows

  def rows(chunk: Int): Int = math.min(step.chunkRows, count - first(chunk))

  def chunks: Iterator[OutgoingChunk] = Iterator.range(0, chunkCount).map { chunk =>
    val tensors = ("keys" -> known.keys(chunk)) +: (fields(chunk) ++ edges(chunk))
    val names = tensors.map(_._1).toSet
    OutgoingChunk(
      chunk,
      first(chunk),
      rows(chunk),
      digest(chunk),
      tensors,
      step.static & names,
      step.kept & names,
      resultBytes(chunk),
      step.spare & names
    )
  }

  private def resultBytes(chunk: Int): Long =
    step.returned
      .map(one => 4L * one.width * (if (one.one) 1 else one.edges.fold(rows(chunk))(sources(_, chunk))) + 64)
      .sum

  private def fields(chunk: Int): Seq[(String, Tensor)] = step.fields.zip(summed).map { case (field, rows) =>
    field.tensor -> (if (field.one) tensor(field, rows, 0, 1) else tensor(field, rows, first(chunk), this.rows(chunk)))
  }

  private def tensor(field: PipeField, all: RowReader, first: Int, count: Int): Tensor = all match {
    case rows: Rows => loaded(field, rows, first, count)
    case _ => new ComputedFloats(count, all.width, (from, until, into) => all.read(first + from, first + until, into))
  }

  private def loaded(field: PipeField, rows: Rows, first: Int, count: Int): Tensor = field.dtype match {
    case "float32" if field.static => rows.part(first, count)
    case "float32" => new Floats(rows.values, first * rows.width, count, rows.width)
    case "int64" => new Longs(Array.tabulate(count)(i => rows.values(first + i).toLong), 0, count)
    case "int8" => new Bytes("int8", Array.tabulate(count)(i => rows.values(first + i).toByte), 0, count)
  }

  private def edges(chunk: Int): Seq[(String, Tensor)] = {
    val halo = halos.iterator
    step.edges.zip(near).flatMap { case (edges, chunks) =>
      val found = chunks(chunk)
      topology(edges, found) ++ edges.sources.map { field =>
        val own = columns(field.columns.head).asInstanceOf[Rows]
        val arrays = own.values +: halo.next()
        field.tensor -> new PickedFloats(arrays, 0 +: found.haloStart, found.sources, own.width)
      }
    }
  }

  private def topology(edges: PipeEdges, found: Neighbourhood): Seq[(String, Tensor)] = {
    val name = edges.edges.name
    val csr = found.matrix
    val weights = if (edges.weighted) csr.weights else None
    Seq(
      s"indptr/$name" -> longs(csr.indptr.map(_.toLong)),
      s"positions/$name" -> longs(csr.columns.map(_.toLong))
    ) ++ weights.map(all => s"weight/$name" -> new Numbers(all)) ++
      (if (edges.keyed) Some(s"edge_keys/$name" -> longs(found.keys)) else None) ++
      edges.columns.map(column => s"edge_column/$name/$column" -> ofEdges(column, found.columns(column)))
  }

  private def ofEdges(column: String, data: EdgeData): Tensor =
    if (EdgeColumn(column).isType) longs(data.values.map(_.toLong))
    else new Floats(data.values, 0, data.values.length / math.max(1, data.width), data.width)

  private def longs(values: Array[Long]) = new Longs(values, 0, values.length)

  /** The sum of several columns, in their order. */
  private def sum(parts: Seq[RowReader]): RowReader = if (parts.length == 1) parts.head else new SummedRows(parts)
}

/** The results of a partition that have been returned so far. */
final private class PipeOutput(step: PipeStep, input: PipeInput) {
  private val columns =
    step.returned.filter(_.edges.isEmpty).map(one => Rows.zeros(rows(one), one.width)).toArray
  private val contributions =
    step.returned.flatMap(one => one.edges.map(edges => input.sums(edges, one.width))).toArray

  /** The rows of a returned column of the partition: one for each vertex or chunk. */
  private def rows(one: PipeReturned): Int = if (one.one) input.chunkCount else input.block.rows(one.within)

  def piped: Piped = new Piped(columns, contributions.map(_.byOwner))

  def take(result: ReturnedChunk): Unit = {
    require(
      result.digest == input.digest(result.index) && result.rows == input.rows(result.index),
      s"chunk ${result.index} of ${step.stage} came back with other rows than were sent"
    )
    var column, contribution = 0
    for (one <- step.returned) {
      val tensor = result.tensors.getOrElse(
        one.tensor,
        throw new IllegalArgumentException(s"stage ${step.stage} (${step.mode}) returned no '${one.tensor}'")
      )
      one.edges match {
        case None =>
          val row = if (one.one) result.index else input.first(result.index)
          tensor.copyTo(columns(column).values, row * one.width)
          column += 1
        case Some(edges) =>
          val rows = Rows.zeros(input.sources(edges, result.index), one.width)
          tensor.copyTo(rows.values, 0)
          contributions(contribution).take(result.index, rows)
          contribution += 1
      }
    }
  }
}
