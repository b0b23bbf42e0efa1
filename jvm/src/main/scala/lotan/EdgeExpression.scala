package lotan

import org.apache.spark.rdd.RDD

import EdgeFunction._

/** An edge column from both ends of each edge, its weight and other edge columns.
  *
  * @param scope
  *   the edges along which it runs
  * @param function
  *   the function that is computed for each edge
  * @param width
  *   numbers per edge; every column that is read has as many
  */
final case class EdgeExpression(scope: EdgeScope, function: EdgeFunction, width: Int) {
  require(width > 0, s"a width of $width; expected at least 1")

  /** `[edges x width]`.
    *
    * @param sources
    *   columns of vertices that are read at the source
    * @param destinations
    *   columns of vertices that are read at the destination
    * @param columns
    *   edge columns
    */
  def apply(
      blocks: RDD[Block],
      sources: Seq[RDD[SourceRows]],
      destinations: Seq[RDD[Rows]],
      columns: Seq[RDD[Rows]]
  ): RDD[Rows] = {
    val start = Zipped(blocks, destinations ++ columns).map { case (block, rows) =>
      (block, rows, Seq.empty[SourceRows])
    }
    val seen = sources.foldLeft(start) { (zipped, column) =>
      zipped.zipPartitions(column) { (left, right) =>
        val (block, rows, found) = left.next()
        Iterator.single((block, rows, found :+ right.next()))
      }
    }
    seen.map { case (block, rows, found) =>
      val (atDestination, ofEdges) = rows.splitAt(destinations.size)
      atDestination.foreach(scope.check(block, _))
      val out = scope.edgeRows(block, width)
      evaluate(new EdgeView(scope.order(block), width, found, atDestination, ofEdges), out)
      out
    }
  }

  private def evaluate(view: EdgeView, out: Rows): Unit =
    for (from <- 0 until view.order.edges by EdgeExpression.AtOnce) {
      val until = math.min(from + EdgeExpression.AtOnce, view.order.edges)
      System.arraycopy(value(function, view, from, until), 0, out.values, from * width, (until - from) * width)
    }

  /** The numbers of a run of edges, in an array of the caller's own. */
  private def value(function: EdgeFunction, view: EdgeView, from: Int, until: Int): Array[Float] = function match {
    case Source(index) => view.source(index, from, until)
    case Destination(index) => view.destination(index, from, until)
    case Edge(index) => view.edge(index, from, until)
    case Weight => view.weight(from, until)
    case Constant(number) => Array.fill((until - from) * width)(number)
    case Two(name, a, b) =>
      val found = value(a, view, from, until)
      Binary(name)(found, value(b, view, from, until), found.length)
      found
    case One(name, a, slope) =>
      val found = value(a, view, from, until)
      Unary(name)(found, slope, found.length)
      found
  }
}

private object EdgeExpression {
  val AtOnce = 1024 // edges: arrays that stay in the cache
}

/** The values that the edges of a partition read. */
final private class EdgeView(
    val order: EdgeOrder,
    width: Int,
    sources: Seq[SourceRows],
    destinations: Seq[Rows],
    columns: Seq[Rows]
) {
  columns.foreach(order.check)
  for (found <- sources.map(_.width) ++ destinations.map(_.width) ++ columns.map(_.width) if order.edges > 0)
    require(found == width, s"a column of width $found in an expression of width $width")

  def source(index: Int, from: Int, until: Int): Array[Float] = {
    val out = new Array[Float]((until - from) * width)
    val rows = sources(index)
    var edge = from
    while (edge < until) {
      val source = order.matrix.columns(edge)
      copy(rows.array(source), rows.offset(source), out, (edge - from) * width)
      edge += 1
    }
    out
  }

  def destination(index: Int, from: Int, until: Int): Array[Float] = {
    val out = new Array[Float]((until - from) * width)
    val rows = destinations(index).values
    var edge = from
    while (edge < until) {
      copy(rows, order.destinations(edge) * width, out, (edge - from) * width)
      edge += 1
    }
    out
  }

  /** One row, of a few numbers: fewer than `System.arraycopy` is quick for. */
  private def copy(rows: Array[Float], from: Int, out: Array[Float], at: Int): Unit = {
    var j = 0
    while (j < width) {
      out(at + j) = rows(from + j)
      j += 1
    }
  }

  def edge(index: Int, from: Int, until: Int): Array[Float] =
    java.util.Arrays.copyOfRange(columns(index).values, from * width, until * width)

  def weight(from: Int, until: Int): Array[Float] = {
    val out = new Array[Float]((until - from) * width)
    for (i <- out.indices) out(i) = order.matrix.weights.fold(1f)(_(from + i / width))
    out
  }
}
