package lotan

/** The inner loop of the engine: sums of rows along the edges of a Csr, one after the other in the order of its columns.
  *
  * @param sources
  *   the rows that columns refer to, in several arrays one after the other (own rows, then the halo by owner)
  * @param starts
  *   `[sources + 1]`: the first column that is in each array
  * @param width
  *   numbers per row
  * @param picks
  *   for each array, which of its rows the columns mean, in order; null for all of them
  */
final class SparseProduct(
    sources: Array[Array[Float]],
    starts: Array[Int],
    width: Int,
    picks: Option[Array[Array[Int]]] = None
) {
  require(starts.length == sources.length + 1, s"${sources.length} arrays of sources and ${starts.length} starts")

  private val pickOf = picks.getOrElse(new Array[Array[Int]](sources.length))

  // Where the rows of the next edges are.
  private val arrays = new Array[Array[Float]](AddRows.Most)
  private val offsets = new Array[Int](AddRows.Most)
  private val scales = Array.fill(AddRows.Most)(1f)

  /** Adds the sums of rows `from until until` to `out`, in which row `from` comes first. */
  def addTo(out: Array[Float], matrix: Csr, weighted: Boolean, from: Int, until: Int): Unit = {
    val weights = if (weighted) matrix.weights.orNull else null
    var row = from
    while (row < until) {
      addRow(out, (row - from) * width, matrix.columns, weights, matrix.indptr(row), matrix.indptr(row + 1))
      row += 1
    }
  }

  /** Adds the rows that the entries `from until until` refer to, to the row of `out` that begins at a place. */
  def addEntries(out: Array[Float], at: Int, matrix: Csr, weighted: Boolean, from: Int, until: Int): Unit =
    addRow(out, at, matrix.columns, if (weighted) matrix.weights.orNull else null, from, until)

  private def addRow(
      out: Array[Float],
      at: Int,
      columns: Array[Int],
      weights: Array[Float],
      from: Int,
      until: Int
  ): Unit = {
    var segment = 0 // columns ascend, and so does this
    var edge = from
    while (edge < until) {
      val count = math.min(AddRows.Most, until - edge)
      var i = 0
      while (i < count) {
        val column = columns(edge + i)
        while (column >= starts(segment + 1)) segment += 1
        arrays(i) = sources(segment)
        val place = column - starts(segment)
        offsets(i) = (if (pickOf(segment) == null) place else pickOf(segment)(place)) * width
        i += 1
      }
      if (weights == null) AddRows(out, at, arrays, offsets, count, width)
      else {
        System.arraycopy(weights, edge, scales, 0, count)
        AddRows.scaled(out, at, arrays, offsets, scales, count, width)
      }
      edge += count
    }
  }
}
