package lotan

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, ObjectInputStream, ObjectOutputStream}

import scala.util.Random

import org.apache.spark.SparkEnv
import org.apache.spark.storage.{RDDBlockId, StorageLevel}
import org.scalatest.funsuite.AnyFunSuite

/** What becomes of columns that Spark puts on the disk. */
class SpillSuite extends AnyFunSuite with LocalSpark {
  import SpillSuite.drawn

  private def through(rows: AnyRef): AnyRef = {
    val bytes = new ByteArrayOutputStream
    val out = new ObjectOutputStream(bytes)
    out.writeObject(rows)
    out.close()
    new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray)).readObject()
  }

  private def bits(rows: Rows) = rows.values.toSeq.map(java.lang.Float.floatToRawIntBits)

  for (count <- Seq(0, 1, 100, 40000))
    test(s"$count rows come back from the disk bit by bit") {
      val rows = drawn(count, 3)
      val found = through(rows).asInstanceOf[Rows]
      assert(found.width == 3 && bits(found) == bits(rows))
    }

  test("several columns at once come back each as it was") {
    val both = through(Array[AnyRef](drawn(5, 2), drawn(7, 1))).asInstanceOf[Array[AnyRef]].map(_.asInstanceOf[Rows])
    assert(both.map(_.count).toSeq == Seq(5, 7) && bits(both(1)) == bits(drawn(7, 1)))
  }

  private val everywhere =
    for (edges <- Seq(EdgeSet.Graph, EdgeSet.SelfLoops); reverse <- Seq(false, true))
      yield Propagate(edges, weighted = true, reverse)

  test("sums in one heap are the same bits when columns and edges lie on the disk") {
    val graph = RandomGraph(8, 60, 200)
    val x = RandomGraph.column(8, graph.count, 5)
    val loaded = graph.load(spark, 4, Map("x" -> x))
    try {
      val column = loaded.columns("x")
      val inMemory = everywhere.map(step => graph.read(loaded.blocks, step(loaded.blocks, column, shared = true)))
      val blocks = loaded.blocks.map(identity).persist(StorageLevel.DISK_ONLY)
      val rows = column.map(identity).persist(StorageLevel.DISK_ONLY)
      try {
        val onDisk = everywhere.map(step => graph.read(blocks, step(blocks, rows, shared = true)))
        assert(onDisk.map(_.map(_.toSeq).toSeq) == inMemory.map(_.map(_.toSeq).toSeq))
      } finally for (one <- Seq(blocks, rows)) one.unpersist(blocking = true)
    } finally loaded.close()
  }

  test("tasks that read a partition from the disk at a time get one object, not a copy each") {
    val column = spark.sparkContext.parallelize(Seq(1, 2), 2).map(drawn(_, 4)).persist(StorageLevel.DISK_ONLY)
    try {
      assert(column.count() == 2)
      val found = new Everyone(column).map { all => SpillSuite.held.synchronized(SpillSuite.held += all); all.length }
      assert(found.collect().toSeq == Seq(2, 2))
      assert(SpillSuite.held.head.zip(SpillSuite.held.last).forall { case (one, other) => one eq other })
      assert(SparkEnv.get.blockManager.getStatus(RDDBlockId(column.id, 0)).exists(_.memSize == 0))
    } finally {
      SpillSuite.held.clear()
      column.unpersist(blocking = true)
    }
  }
}

private object SpillSuite {
  def drawn(count: Int, width: Int): Rows = {
    val random = new Random(count)
    new Rows(width, Array.fill(count * width)(java.lang.Float.intBitsToFloat(random.nextInt())))
  }

  val held = scala.collection.mutable.ArrayBuffer.empty[Array[Rows]]
}
