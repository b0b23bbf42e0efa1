package lotan

/** Rows of numbers that belong to edges, such as attributes: `[edges x width]`, one after the other. */
final class EdgeData(val width: Int, val values: Array[Float]) extends Serializable {
  require(width == 0 || values.length % width == 0, s"${values.length} numbers in rows of $width")

  /** Returns the rows at some places, in their order. */
  def pick(places: Array[Int]): EdgeData = {
    val found = new Array[Float](places.length * width)
    for (i <- places.indices) System.arraycopy(values, places(i) * width, found, i * width, width)
    new EdgeData(width, found)
  }

  /** Returns the rows `from until until`. */
  def slice(from: Int, until: Int): EdgeData =
    new EdgeData(width, java.util.Arrays.copyOfRange(values, from * width, until * width))

  /** Returns these rows, and those of another after them. */
  def ++(other: EdgeData): EdgeData = new EdgeData(width, values ++ other.values)

  /** Returns some of the numbers of each row: `from until until`. */
  def columns(from: Int, until: Int): EdgeData =
    if (from == 0 && until == width) this
    else {
      val rows = if (width == 0) 0 else values.length / width
      val found = new Array[Float](rows * (until - from))
      for (row <- 0 until rows) System.arraycopy(values, row * width + from, found, row * (until - from), until - from)
      new EdgeData(until - from, found)
    }

  /** Compares two rows, number by number. */
  def compare(one: Int, other: Int): Int = {
    var found, at = 0
    while (found == 0 && at < width) {
      found = java.lang.Float.compare(values(one * width + at), values(other * width + at))
      at += 1
    }
    found
  }
}

/** What the rows of a matrix's data hold beside attributes.
  *
  * @param typed
  *   true if they begin with the type
  * @param ordered
  *   true if they end with the order among the in-edges of a vertex
  */
final case class EdgeLayout(typed: Boolean = false, ordered: Boolean = false)

/** A column of edges that a stage reads, by its name in the Planner: `edge_type`, `edge_attr`, `edge_loop` (1 for a
  * self-loop, else 0), `edge_order`, or with the value of added self-loops `edge_attr[mean]`.
  *
  * @param fill
  *   a number, or "mean", "add", "max" or "min" of the in-edges of the loop's vertex; None in the edge set "graph"
  */
final case class EdgeColumn(name: String, base: String, fill: Option[String]) {
  def isType: Boolean = base == "edge_type"

  /** Returns the column's numbers for the entries of a matrix.
    *
    * @param layout
    *   what the rows of the matrix's data hold
    */
  def of(matrix: Csr, layout: EdgeLayout): EdgeData =
    if (base == "edge_loop") matrix.loops
    else {
      val data = matrix.data.getOrElse {
        throw new IllegalArgumentException(s"a stage reads '$name', but the edges have no data")
      }
      val until = data.width - (if (layout.ordered) 1 else 0)
      if (isType) data.columns(0, 1)
      else if (base == "edge_order") data.columns(until, data.width)
      else data.columns(if (layout.typed) 1 else 0, until)
    }

  /** Returns the value of an added self-loop at each vertex.
    *
    * @param matrix
    *   the in-edges of the vertices
    * @param values
    *   the column's numbers of these edges
    */
  def added(matrix: Csr, values: EdgeData): EdgeData = {
    val found = new Array[Float](matrix.rows * values.width)
    fill.get match {
      case "mean" | "add" | "max" | "min" =>
        for (row <- 0 until matrix.rows; at <- 0 until values.width)
          found(row * values.width + at) = reduced(matrix.indptr(row), matrix.indptr(row + 1), at, values)
      case number => java.util.Arrays.fill(found, number.toFloat)
    }
    new EdgeData(values.width, found)
  }

  /** Sums are taken in double, so that the order of edges does not matter. */
  private def reduced(from: Int, until: Int, at: Int, values: EdgeData): Float =
    if (from == until) 0f
    else {
      val numbers = Iterator.range(from, until).map(edge => values.values(edge * values.width + at))
      fill.get match {
        case "max" => numbers.max
        case "min" => numbers.min
        case "add" => numbers.map(_.toDouble).sum.toFloat
        case _ => (numbers.map(_.toDouble).sum / (until - from)).toFloat
      }
    }
}

object EdgeColumn {
  private val Names = Set("edge_attr", "edge_type", "edge_loop", "edge_order")

  def apply(name: String): EdgeColumn = {
    val (base, rest) = name.span(_ != '[')
    require(Names.contains(base), s"there is no column '$name' of edges")
    EdgeColumn(name, base, if (rest.isEmpty) None else Some(rest.stripPrefix("[").stripSuffix("]")))
  }
}
