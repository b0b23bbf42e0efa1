package lotan

import scala.collection.mutable.ArrayBuffer

/** A block before it knows which of its rows other partitions need.
  *
  * @param block
  *   the block, without rows to send
  * @param columns
  *   the columns of its vertices
  * @param halo
  *   ids of the halo, in its order
  * @param hubEdges
  *   the least number of a hub's edges, as in `Load`
  */
final private class UnlinkedBlock(block: Block, columns: Array[Rows], halo: Ids, hubEdges: Int) extends Serializable {
  private val cut = if (block.partitions == 1) None else HubCut(block, hubEdges)

  /** The halo's ids, to their owners, with the edges from there to hubs. */
  def requests: Iterator[(Int, Parcel)] =
    Iterator.range(0, block.partitions).map(owner => owner -> haloOf(owner)).filter(_._2.nonEmpty).map {
      case (owner, rows) =>
        val (edges, weights) = cut.fold((Seq.empty[LongIds], Parcel.NoValues))(_.request(owner))
        owner -> new Parcel(block.partition, halo.select(rows) +: edges, 1, weights)
    }

  /** Returns the finished block, from the requests of the other partitions. */
  def answer(requests: Array[Parcel]): (Block, Array[Rows]) = {
    require(
      block.levels.isEmpty,
      s"ids in the order of ${block.levels.length} levels; expected them sorted, to be found"
    )
    val rows =
      requests.map(parcel => if (parcel == null) Array.empty[Int] else UnlinkedBlock.rowsOf(block.ids, parcel.ids.head))
    (block.sending(rows, hubs(requests, rows)), columns)
  }

  private def hubs(requests: Array[Parcel], rows: Array[Array[Int]]): Hubs = {
    val left = cut.fold(block)(_.rest)
    val sources = Hubs.largeSources(left, hubEdges)
    val senders = requests.indices.filter(sender => requests(sender) != null && requests(sender).ids.size > 1)
    if (senders.isEmpty && cut.isEmpty) Hubs.none(sources)
    else {
      val needed = rows.clone()
      for (sender <- senders) needed(sender) = ints(requests(sender).ids(1)).map(rows(sender)(_))
      val nothing = new Csr(Array(0), Array.empty, block.graph.forward.weights.map(_ => Array.empty))
      val forward = senders.map(sender => hubEdgesOf(requests(sender), rows(sender))).foldLeft(nothing)(_ above _)
      val counts = rows.indices.map(p => if (senders.contains(p)) requests(p).ids(2).size - 1 else 0).toArray
      val own = cut.fold(Array.empty[Int])(_.own)
      val rest = left.sending(needed, Hubs.none(sources))
      new Hubs(own, Some(rest), Csr.prefixSums(counts), forward, forward.transpose(block.count), sources)
    }
  }

  /** The edges from this block to the sender's hubs. */
  private def hubEdgesOf(request: Parcel, rows: Array[Int]): Csr = {
    val weights = block.graph.forward.weights.map(_ => request.values)
    new Csr(ints(request.ids(2)), ints(request.ids(3)).map(rows(_)), weights)
  }

  private def ints(ids: Ids): Array[Int] = ids.asInstanceOf[LongIds].values.map(_.toInt)

  private def haloOf(owner: Int): Array[Int] =
    Array.range(block.haloStart(owner) - block.count, block.haloStart(owner + 1) - block.count)
}

private object UnlinkedBlock {

  def apply(
      partition: Int,
      placement: Placement,
      text: Boolean,
      columnCount: Int,
      weighted: Boolean,
      hubEdges: Int,
      dataWidth: Option[Int],
      vertexParts: Iterator[Parcel],
      edgeParts: Iterator[Parcel]
  ): UnlinkedBlock = {
    val (ids, columns) = vertices(vertexParts.toSeq, text, columnCount)
    val parts = edgeParts.to(ArrayBuffer)
    val sources = Ids.concat(parts.map(_.ids.head).toSeq, text).distinct
    val owners = Array.tabulate(sources.size)(sources.partition(_, placement))
    val halo = haloOrder(owners, partition, placement.partitions)
    val haloStart = Csr.prefixSums(Csr.counts(halo.map(owners), placement.partitions)).map(_ + ids.size)
    val columnOf = new Array[Int](sources.size)
    for (i <- owners.indices if owners(i) == partition) columnOf(i) = found(ids, sources, i)
    for (i <- halo.indices) columnOf(halo(i)) = ids.size + i
    val graph = Edges(matrix(parts, ids, sources, columnOf, weighted, dataWidth), haloStart.last)
    val loops = Edges.withSelfLoops(graph, haloStart.last)
    val nothing = Array.fill(placement.partitions)(Array.empty[Int])
    val far = sources.select(halo)
    val keys = Array.tabulate(ids.size)(ids.key) ++ Array.tabulate(far.size)(far.key)
    val block = new Block(partition, ids, keys, haloStart, nothing, graph, loops, Hubs.none(placement.partitions))
    new UnlinkedBlock(block, columns, far, hubEdges)
  }

  /** Returns the rows of some ids. */
  def rowsOf(ids: Ids, asked: Ids): Array[Int] = Array.tabulate(asked.size)(found(ids, asked, _))

  private def found(ids: Ids, asked: Ids, i: Int): Int = {
    val row = ids.find(asked, i)
    require(row >= 0, s"an edge names the vertex ${asked.show(i)}, which is not among the vertices")
    row
  }

  /** The ids of vertices that have arrived, sorted, and their columns. */
  def vertices(parts: Seq[Parcel], text: Boolean, columnCount: Int): (Ids, Array[Rows]) = {
    val arrived = Ids.concat(parts.map(_.ids.head), text)
    val ids = arrived.distinct
    val order = Array.fill(ids.size)(-1) // where the vertex of each row arrived
    for (i <- 0 until arrived.size) {
      val row = ids.find(arrived, i)
      require(order(row) < 0, s"two vertices have the id ${arrived.show(i)}")
      order(row) = i
    }
    val widths = parts.map(_.ids(1).asInstanceOf[LongIds].values.map(_.toInt).toSeq).distinct
    require(
      widths.size <= 1,
      s"columns of vertices have different widths: ${widths.map(_.mkString("(", ", ", ")")).mkString(" and ")}"
    )
    val found = widths.headOption.getOrElse(Seq.fill(columnCount)(1)) // an empty partition cannot know, and need not
    (ids, split(Array.concat(parts.map(_.values): _*), order, found))
  }

  /** One table of columns side by side into one array each, sorted. */
  private def split(values: Array[Float], order: Array[Int], widths: Seq[Int]): Array[Rows] = {
    val starts = widths.scanLeft(0)(_ + _)
    widths
      .zip(starts)
      .map { case (width, start) =>
        val rows = Rows.zeros(order.length, width)
        for (row <- order.indices)
          System.arraycopy(values, order(row) * starts.last + start, rows.values, row * width, width)
        rows
      }
      .toArray
  }

  /** Positions among all sources of those in other partitions, by owner, then in their order. */
  private def haloOrder(owners: Array[Int], partition: Int, partitions: Int): Array[Int] = {
    val byOwner = Array.fill(partitions)(Array.newBuilder[Int])
    for (i <- owners.indices if owners(i) != partition) byOwner(owners(i)) += i
    Array.concat(byOwner.map(_.result()).toSeq: _*)
  }

  /** The numbers of an edge: its weight if there are weights, and its data. They do not matter if it has neither. */
  private def widthOf(parts: ArrayBuffer[Parcel], weighted: Boolean, dataWidth: Option[Int]): Int = {
    val widths = parts.map(_.width).distinct
    require(widths.size <= 1, s"edges have data of different widths: ${widths.mkString(" and ")}")
    widths.headOption.getOrElse((if (weighted) 1 else 0) + dataWidth.getOrElse(0))
  }

  private def matrix(
      parts: ArrayBuffer[Parcel],
      ids: Ids,
      sources: Ids,
      columnOf: Array[Int],
      weighted: Boolean,
      dataWidth: Option[Int]
  ): Csr = {
    val rows = parts.toArray.flatMap(part => rowsOf(ids, part.ids(1)))
    val columns =
      parts.toArray.flatMap(part => Array.tabulate(part.ids.head.size)(i => columnOf(sources.find(part.ids.head, i))))
    val numbers = new EdgeData(widthOf(parts, weighted, dataWidth), Array.concat(parts.map(_.values).toSeq: _*))
    val weights = if (weighted) Some(numbers.columns(0, 1).values) else None
    val data = dataWidth.map(_ => numbers.columns(if (weighted) 1 else 0, numbers.width))
    Csr(ids.size, rows, columns, weights, data)
  }
}
