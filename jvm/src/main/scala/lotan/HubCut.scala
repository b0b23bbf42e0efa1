package lotan

/** A block whose hubs lose their in-edges from other partitions, which are to have them: see `Hubs`.
  *
  * @param own
  *   rows of the hubs, ascending
  * @param rest
  *   the rest of the block
  * @param halo
  *   the part of the block's halo that is left, ascending
  */
final private class HubCut(val own: Array[Int], val rest: Block, halo: Array[Int], block: Block) extends Serializable {

  /** The message to an owner: the places of its part of the block's halo that are left, and the edges from its vertices to each
    * hub, by their places in that part.
    */
  def request(owner: Int): (Seq[LongIds], Array[Float]) = {
    val (first, end) = (block.haloStart(owner), block.haloStart(owner + 1))
    val csr = block.graph.forward
    val parts = own.map(hub => (HubCut.place(csr, hub, first), HubCut.place(csr, hub, end)))
    val starts = Csr.prefixSums(parts.map { case (from, until) => until - from })
    val places = parts.flatMap { case (from, until) => csr.columns.slice(from, until) }
    val left = halo.filter(place => block.count + place >= first && block.count + place < end)
    val ids = Seq(left.map(block.count + _ - first), starts, places.map(_ - first)).map(longs)
    (ids, csr.weights.fold(Parcel.NoValues)(all => parts.flatMap { case (from, until) => all.slice(from, until) }))
  }

  private def longs(values: Array[Int]) = new LongIds(values.map(_.toLong))
}

private object HubCut {

  /** Cuts a block. The result is None for a block without hubs.
    *
    * @param least
    *   in-edges from other partitions that a hub has
    */
  def apply(block: Block, least: Int): Option[HubCut] = {
    val csr = block.graph.forward
    val own = Array.range(0, block.count).filter { row =>
      Hubs.isLarge(csr.indptr(row + 1) - place(csr, row, block.count), csr.edges, least)
    }
    if (own.isEmpty) None
    else {
      val kept = without(csr, own, block.count)
      val used = new Array[Boolean](block.sources)
      kept.columns.foreach(used(_) = true)
      val halo = Array.range(block.count, block.sources).filter(used(_))
      Some(new HubCut(own, rest(block, kept, halo), halo.map(_ - block.count), block))
    }
  }

  private def rest(block: Block, kept: Csr, halo: Array[Int]): Block = {
    val numbers = new Array[Int](block.sources)
    for (row <- 0 until block.count) numbers(row) = row
    for (i <- halo.indices) numbers(halo(i)) = block.count + i
    val starts = block.haloStart.map(first => block.count + halo.count(_ < first))
    val graph = Edges(new Csr(kept.indptr, kept.columns.map(numbers(_)), kept.weights), starts.last)
    new Block(
      block.partition,
      block.ids,
      block.sourceKeys.take(block.count) ++ halo.map(block.sourceKeys(_)),
      starts,
      block.send,
      graph,
      Edges.withSelfLoops(graph, starts.last),
      Hubs.none(block.partitions)
    )
  }

  /** Returns the matrix without the entries of some rows in columns from `width` on. */
  private def without(csr: Csr, rows: Array[Int], width: Int): Csr = {
    val ends = csr.indptr.drop(1)
    for (row <- rows) ends(row) = place(csr, row, width)
    val indptr = Csr.prefixSums(ends.zip(csr.indptr).map { case (end, start) => end - start })
    val columns = new Array[Int](indptr.last)
    val weights = csr.weights.map(_ => new Array[Float](indptr.last))
    for (row <- 0 until csr.rows) {
      val length = ends(row) - csr.indptr(row)
      System.arraycopy(csr.columns, csr.indptr(row), columns, indptr(row), length)
      for (all <- csr.weights; some <- weights) System.arraycopy(all, csr.indptr(row), some, indptr(row), length)
    }
    new Csr(indptr, columns, weights)
  }

  /** Returns the place in a row at which the columns from `least` on begin. */
  private def place(csr: Csr, row: Int, least: Int): Int = {
    var (from, until) = (csr.indptr(row), csr.indptr(row + 1))
    while (from < until) {
      val middle = (from + until) >>> 1
      if (csr.columns(middle) < least) from = middle + 1 else until = middle
    }
    from
  }
}
