package lotan

import org.apache.spark.sql.functions.{array, col, when}
import org.scalatest.funsuite.AnyFunSuite

class EdgeDataSuite extends AnyFunSuite with LocalSpark {
  test("parallel entries are sorted by weight, then by data") {
    val data = new EdgeData(2, Array(1f, 5f, 0f, 9f, 1f, 4f, 7f, 7f))
    val csr = Csr(1, Array(0, 0, 0, 0), Array(3, 3, 3, 1), Some(Array(2f, 2f, 2f, 8f)), Some(data))
    assert(csr.columns.toSeq == Seq(1, 3, 3, 3))
    assert(csr.data.get.values.toSeq == Seq(7f, 7f, 0f, 9f, 1f, 4f, 1f, 5f))
    val heavier = Csr(1, Array(0, 0), Array(0, 0), Some(Array(2f, 1f)), Some(new EdgeData(1, Array(3f, 4f))))
    assert(heavier.data.get.values.toSeq == Seq(4f, 3f))
  }

  test("places of a matrix with a diagonal") {
    val csr = Csr(3, Array(0, 0, 0, 2, 2), Array(1, 2, 2, 0, 1), None)
    val whole = csr.withDiagonal(Array(1f, 1f, 1f))
    val columns = csr.columns ++ Array.range(0, 3)
    assert(csr.placesWithDiagonal.map(columns(_)).toSeq == whole.columns.toSeq)
    assert(csr.placesWithDiagonal.sorted.toSeq == (0 until 8))
  }

  test("a number of another width, and an unknown column, are refused") {
    assertThrows[IllegalArgumentException](new EdgeData(2, Array(1f, 2f, 3f)))
    assertThrows[IllegalArgumentException](EdgeColumn("edge_label"))
  }

  test("the type comes first among the numbers of an edge, and its order last") {
    val data = new EdgeData(4, Array(1f, 5f, 6f, 0f, 2f, 7f, 8f, 1f))
    val matrix = new Csr(Array(0, 2), Array(0, 1), None, Some(data))
    val layout = EdgeLayout(typed = true, ordered = true)
    assert(EdgeColumn("edge_type").of(matrix, layout).values.toSeq == Seq(1f, 2f))
    assert(EdgeColumn("edge_attr").of(matrix, layout).values.toSeq == Seq(5f, 6f, 7f, 8f))
    assert(EdgeColumn("edge_order").of(matrix, layout).values.toSeq == Seq(0f, 1f))
  }

  for (partitions <- Seq(1, 3, 7); leveled <- Seq(false, true); chunkRows <- Seq(4, 4096))
    test(s"chunks have the data of their edges: $partitions partitions, levels $leveled, $chunkRows rows per chunk") {
      val graph = RandomGraph(partitions, 40, 160)
      val number = (0 until graph.count).map(v => graph.id(v).asInstanceOf[Long] -> v).toMap
      val split = Array.tabulate(graph.count)(v => Array(if (v == 7) 0f else -1f))
      val vertices = graph.vertices(spark, Map("split" -> split))
      val numbered = (0 until graph.count).foldLeft(col("src").cast("float")) { (found, v) =>
        when(col("src") === graph.id(v), v.toFloat).otherwise(found)
      }
      // The data tells the edge: a type that is its source's parity, its source, and its weight.
      val data = array(numbered % 2, numbered, col("weight"))
      val edges = graph.edgeTable(spark).withColumn("data", data)
      val first = Load(partitions, Seq("split"), Some("weight"), data = Some("data"), dataWidth = 3)(vertices, edges)
      val loaded = if (leveled) LevelOrder(1)(first) else first
      try {
        val fills = Seq("2.5", "max", "min", "add", "mean")
        for (set <- Seq(EdgeSet.Graph, EdgeSet.SelfLoops)) {
          val names =
            if (set == EdgeSet.Graph) Seq("edge_type", "edge_attr", "edge_loop")
            else "edge_type[1]" +: fills.map(fill => s"edge_attr[$fill]") :+ "edge_loop[2.0]"
          val near = Collect(set, chunkRows, columns = names.map(EdgeColumn(_)), layout = EdgeLayout(typed = true))(
            loaded.blocks
          )
          for (
            (block, chunks) <- loaded.blocks.zip(near).collect(); chunk <- chunks; row <- 0 until chunk.matrix.rows
          ) {
            val vertex = number(block.ids.asInstanceOf[LongIds].values(chunk.firstRow + row))
            val into = graph.edges.filter(_._2 == vertex)
            for (edge <- chunk.matrix.indptr(row) until chunk.matrix.indptr(row + 1)) {
              val isLoop = chunk.sources(chunk.matrix.columns(edge)) == chunk.firstRow + row
              val added = set == EdgeSet.SelfLoops && isLoop && !into.exists(_._1 == vertex)
              val weight = chunk.matrix.weights.get(edge)
              for (name <- names) {
                val found = chunk.columns(name)
                val numbers = found.values.slice(edge * found.width, (edge + 1) * found.width).toSeq
                val column = EdgeColumn(name)
                if (added) assert(alike(numbers, EdgeDataSuite.filled(column, into)))
                else if (column.base == "edge_loop") assert(numbers == Seq(if (isLoop) 1f else 0f))
                else if (column.isType) assert(numbers.length == 1 && (numbers.head == 0f || numbers.head == 1f))
                else {
                  assert(numbers(1) == weight)
                  assert(into.exists { case (source, _, w) => w == weight && source == numbers.head.toInt })
                  if (isLoop) assert(numbers.head == vertex)
                }
              }
              if (!added) {
                val (types, sources) = (chunk.columns(names.head), chunk.columns(names(1)))
                assert(types.values(edge) == sources.values(edge * 2) % 2)
              }
            }
          }
        }
      } finally loaded.close()
    }

  private def alike(one: Seq[Float], other: Seq[Float]) =
    one.length == other.length && one.zip(other).forall { case (a, b) => math.abs(a - b) <= 1e-4 * (1 + math.abs(b)) }
}

private object EdgeDataSuite {

  /** The value of an added self-loop, given the in-edges of its vertex. */
  def filled(column: EdgeColumn, into: Seq[(Int, Int, Float)]): Seq[Float] = {
    val numbers = Seq(into.map(_._1.toFloat), into.map(_._3))
    column.fill.get match {
      case "max" => numbers.map(_.maxOption.getOrElse(0f))
      case "min" => numbers.map(_.minOption.getOrElse(0f))
      case "add" => numbers.map(_.sum)
      case "mean" => numbers.map(all => if (all.isEmpty) 0f else all.sum / all.length)
      case number => Seq.fill(if (column.base == "edge_attr") 2 else 1)(number.toFloat)
    }
  }
}
