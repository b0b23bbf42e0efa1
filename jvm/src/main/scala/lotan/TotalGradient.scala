package lotan

import org.apache.spark.rdd.RDD

/** Computes the gradient of a column from that of its reduction over all vertices (`Total`), plus other gradients of it.
  *
  * Let g be the sum of all rows of the gradients, n the number of vertices and s the scale of a vertex. Its gradient is s g for a
  * sum, s g / n for a mean, s g / (n - 1) for "sample", and s (g of the mean + 2 (s x - mean) g of the variance) / n for moments.
  *
  * @param kind
  *   the kind of the reduction
  * @param vertices
  *   their number
  */
final case class TotalGradient(kind: String, vertices: Long) {

  /** The part of each partition: the sum of its rows of some columns, in float64 and in their order. Several tasks read it: the
    * caller persists and unpersists it.
    */
  def parts(blocks: RDD[Block], gradients: Seq[RDD[_ <: RowReader]]): RDD[TotalPart] =
    side(blocks, gradients).map { found =>
      val columns = found.tail.map(_.asInstanceOf[RowReader])
      val sum = new Array[Double](columns.head.width)
      columns.foreach(addRows(_, sum))
      // A count of 1 for each partition makes the merged mean times the merged count the sum.
      new TotalPart(found.head.asInstanceOf[Block].partition, 1, sum, Array.emptyDoubleArray)
    }

  private def addRows(rows: RowReader, sum: Array[Double]): Unit = {
    val row = new Array[Float](rows.width)
    var at = 0
    while (at < rows.count) {
      rows.read(at, at + 1, row)
      var i = 0
      while (i < row.length) {
        sum(i) += row(i)
        i += 1
      }
      at += 1
    }
  }

  /** The gradient, for every vertex.
    *
    * @param parts
    *   what `parts` has returned
    * @param x
    *   the column that was reduced and its reduction, for moments
    * @param scale
    *   a number for each vertex, by which its row was multiplied
    * @param plus
    *   other gradients of the column
    */
  def apply(
      blocks: RDD[Block],
      parts: RDD[TotalPart],
      x: Option[(RDD[_ <: RowReader], RDD[_ <: RowReader])],
      scale: Option[RDD[Rows]],
      plus: Seq[RDD[_ <: RowReader]],
      shared: Boolean
  ): RDD[Rows] = {
    val others = x.toSeq.flatMap { case (column, moments) => Seq(column, moments) } ++ scale ++ plus
    val all = Total.everywhere(parts, shared)
    val (ofMoments, scaled) = (x.isDefined, scale.isDefined)
    side(blocks, others).zipPartitions(all) { (ofColumns, ofParts) =>
      val found = ofColumns.next()
      val readers = found.tail.map(_.asInstanceOf[RowReader])
      val (reduced, rest) = readers.splitAt(if (ofMoments) 2 else 0)
      val (by, more) = rest.splitAt(if (scaled) 1 else 0)
      val sum = ofParts.next().reduceLeft(_ + _)
      val gradient = sum.mean.map(_ * sum.count)
      Iterator.single(
        spread(found.head.asInstanceOf[Block], gradient, reduced, by.headOption.map(_.asInstanceOf[Rows].values), more)
      )
    }
  }

  private def side(blocks: RDD[Block], columns: Seq[RDD[_ <: RowReader]]): RDD[Array[AnyRef]] =
    new SideBySide[AnyRef]((blocks +: columns).map(_.asInstanceOf[RDD[AnyRef]]), Set.empty, compute => compute())

  private def spread(
      block: Block,
      gradient: Array[Double],
      reduced: Array[RowReader],
      scale: Option[Array[Float]],
      plus: Array[RowReader]
  ): Rows = {
    val (ofMean, mean, ofVariance) = factors(block, gradient, reduced)
    val width = ofMean.length
    val out = Rows.zeros(block.count, width)
    val read = new Array[Float](width)
    var row = 0
    while (row < block.count) {
      val (at, factor) = (row * width, scale.fold(1f)(_(row)))
      if (reduced.isEmpty) TotalGradient.constant(out.values, at, ofMean, factor, width)
      else
        reduced.head match {
          case rows: Rows =>
            TotalGradient.centred(out.values, at, rows.values, at, ofMean, mean, ofVariance, factor, width)
          case rows =>
            rows.read(row, row + 1, read)
            TotalGradient.centred(out.values, at, read, 0, ofMean, mean, ofVariance, factor, width)
        }
      for (other <- plus) other match {
        case rows: Rows => AddRows.one(out.values, at, rows.values, at, width)
        case rows =>
          rows.read(row, row + 1, read)
          AddRows.one(out.values, at, read, 0, width)
      }
      row += 1
    }
    out
  }

  /** The gradient of the mean for a row, and for moments the mean and the factor of the distance from it; else empty arrays. */
  private def factors(
      block: Block,
      gradient: Array[Double],
      reduced: Array[RowReader]
  ): (Array[Float], Array[Float], Array[Float]) =
    if (reduced.isEmpty) {
      val divisor = kind match {
        case "sum" => 1.0
        case "mean" => vertices.toDouble
        case _ => (vertices - 1).toDouble
      }
      (gradient.map(g => (g / divisor).toFloat), Array.emptyFloatArray, Array.emptyFloatArray)
    } else {
      val moments = new Array[Float](gradient.length)
      if (block.count > 0) reduced(1).read(0, 1, moments)
      val numbers = gradient.indices.by(2)
      (
        numbers.map(i => (gradient(i) / vertices).toFloat).toArray,
        numbers.map(moments(_)).toArray,
        numbers.map(i => (2 * gradient(i + 1) / vertices).toFloat).toArray
      )
    }
}

private object TotalGradient {
  private type Floats = Array[Float]

  // The JIT compiler makes vector instructions of these loops: see `AddRows`.

  def constant(out: Floats, at: Int, row: Floats, factor: Float, width: Int): Unit = {
    var i = 0
    while (i < width) {
      out(at + i) = factor * row(i)
      i += 1
    }
  }

  def centred(
      out: Floats,
      at: Int,
      x: Floats,
      from: Int,
      ofMean: Floats,
      mean: Floats,
      ofVariance: Floats,
      factor: Float,
      width: Int
  ): Unit = {
    var i = 0
    while (i < width) {
      out(at + i) = factor * (ofMean(i) + (factor * x(from + i) - mean(i)) * ofVariance(i))
      i += 1
    }
  }
}
