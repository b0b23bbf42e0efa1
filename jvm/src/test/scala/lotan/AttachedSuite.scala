package lotan

import java.nio.{ByteBuffer, ByteOrder}

import org.scalatest.funsuite.AnyFunSuite

class AttachedSuite extends AnyFunSuite with LocalSpark {

  for (within <- Seq(Block.All, 0))
    test(s"pieces of a column are the column again, up to level $within, with an empty partition") {
      val graph = RandomGraph(2, 6, 10, text = false)
      val x = RandomGraph.column(2, graph.count, 3)
      val split = RandomGraph.column(3, graph.count, 1).map(_.map(value => if (value > 0) 0f else -1f))
      val loaded = LevelOrder(1)(graph.load(spark, 9, Map("x" -> x, "split" -> split)))
      try {
        val counts = loaded.blocks.map(_.rows(within)).collect()
        val column = loaded.blocks.zipPartitions(loaded.columns("x")) { (ofBlock, rows) =>
          rows.map(all => new Rows(3, all.values.take(3 * ofBlock.next().rows(within))))
        }
        val pieces = Pieces(column, 4)
        assert(pieces.getNumPartitions == 4)
        val table =
          spark.createDataFrame(pieces.map(AttachedSuite.place)).toDF("partition", "first", "values").orderBy("first")
        val found = Attached(loaded.blocks, table, 3, within).collect()
        assert(found.map(_.values.toSeq).toSeq == column.collect().map(_.values.toSeq).toSeq)
        assert(found.map(_.count).toSeq == counts.toSeq)
        val occupied = counts.indexWhere(_ > 0)
        val fewer = table.where(s"partition != $occupied")
        val failure = intercept[Exception](Attached(loaded.blocks, fewer, 3, within).collect())
        assert(failure.getMessage.contains("0 numbers came for"))
      } finally loaded.close()
    }

  for (text <- Seq(false, true))
    test(s"ids come in the order of blocks: ${if (text) "string" else "long"} ids") {
      val graph = RandomGraph(2, 6, 10, text)
      val loaded = graph.load(spark, 9, Map.empty)
      try {
        val found = Pieces.ids(loaded.blocks).collect().map(row => row.getInt(0) -> row.getSeq[Any](2))
        val wanted = loaded.blocks.collect().filter(_.count > 0).map { block =>
          block.partition -> Seq.tabulate(block.count)(block.ids.show)
        }
        assert(found.map { case (part, ids) =>
          part -> ids.map(id => if (text) s"'$id'" else s"$id")
        }.toSeq == wanted.toSeq)
      } finally loaded.close()
    }
}

private object AttachedSuite {

  /** The partition, the first vertex and the numbers of a record of `Pieces`. */
  def place(record: Array[Byte]): (Int, Int, Array[Byte]) = {
    val buffer = ByteBuffer.wrap(record).order(ByteOrder.LITTLE_ENDIAN)
    (buffer.getInt, buffer.getInt, record.drop(8))
  }
}
