package lotan

import java.io.File

import org.apache.spark.rdd.RDD
import org.apache.spark.storage.StorageLevel
import org.scalatest.funsuite.AnyFunSuite

/** Sums for which few rows are in hand, and the files that they read. */
class InTurnSuite extends AnyFunSuite with LocalSpark {

  for ((partitions, vertices) <- Seq((1, 60), (5, 60), (17, 12)))
    test(s"the same bits as with all partitions at hand: $partitions of $vertices vertices") {
      val graph = RandomGraph(7, vertices, 5 * vertices)
      val loaded = graph.load(spark, partitions, Map("x" -> RandomGraph.column(7, graph.count, 9)))
      try
        for {
          set <- Seq(EdgeSet.Graph, EdgeSet.SelfLoops)
          weighted <- Seq(false, true)
          reverse <- Seq(false, true)
          step = Propagate(set, weighted, reverse)
        } {
          val whole = step(loaded.blocks, loaded.columns("x"), shared = true).collect()
          val expected = whole.toSeq.map(_.values.toSeq.map(java.lang.Float.floatToRawIntBits))
          val found = InTurnSuite.bits(InTurn(step, hubs = false), loaded.blocks, loaded.columns("x"))
          assert(found.zip(expected).forall { case (one, other) => one == other }, step.toString)
        }
      finally loaded.close()
    }

  test("tasks that run together begin with different partitions, and each reads all") {
    val orders = (0 until 7).map(Everyone.order(_, 7, 2))
    assert(orders.forall(_.sorted == (0 until 7)))
    assert(orders(0).take(3) == Seq(0, 2, 4) && orders(1).take(3) == Seq(1, 3, 5))
  }

  for (width <- Seq(1, 3, 700, 100000))
    test(s"rows of width $width are read from a file, whichever are asked for") {
      val count = math.max(3, 300000 / width)
      val rows = SpillSuite.drawn(count, width)
      val file = ColumnFile.write(rows, owner = -1)
      val random = new scala.util.Random(width)
      val some = for (share <- Seq(0.0, 0.003, 0.3, 1.0)) yield (0 until count).filter(_ => random.nextDouble() < share)
      for (places <- some :+ Seq(0, count - 1); number <- Set(places.length, places.length / 2)) {
        val expected = places.take(number).flatMap(place => rows.values.slice(place * width, (place + 1) * width))
        val found = file.rows(places.toArray, number)
        assert(found.toSeq.map(java.lang.Float.floatToRawIntBits) == expected.map(java.lang.Float.floatToRawIntBits))
      }
      assert(
        file.rows(count - 1).toSeq.map(java.lang.Float.floatToRawIntBits) ==
          rows.values.dropRight(width).toSeq.map(java.lang.Float.floatToRawIntBits)
      )
    }

  test("the files of a column are deleted when it is released, and those of a task that fails at once") {
    val column = spark.sparkContext.parallelize(Seq(1, 2), 2).map(SpillSuite.drawn(_, 4))
    val files = Facade.files(column)
    Facade.persist(files)
    val paths = files.map(_.path).collect()
    assert(paths.length == 2 && paths.forall(new File(_).exists))
    Facade.release(files)
    assert(!paths.exists(new File(_).exists))
    val before = InTurnSuite.temporary()
    val failing = Facade.files(column).map[Int](_ => throw new IllegalStateException("after a file was written"))
    assert(intercept[Exception](failing.count()).getMessage.contains("after a file was written"))
    assert(InTurnSuite.temporary() == before)
  }
}

private object InTurnSuite {

  def bits(inTurn: InTurn, blocks: RDD[Block], column: RDD[Rows]): Seq[Seq[Int]] = {
    val edges = inTurn.edges(blocks).persist(StorageLevel.MEMORY_AND_DISK)
    val files = Facade.files(column)
    Facade.persist(files)
    try
      inTurn(blocks, edges, column, files)
        .map(_.values.toSeq.map(java.lang.Float.floatToRawIntBits))
        .collect()
        .toSeq
    finally {
      Facade.release(files)
      val _ = edges.unpersist(blocking = true)
    }
  }

  /** The files in Spark's folders that are not blocks. */
  def temporary(): Set[String] = {
    val all = org.apache.spark.SparkEnv.get.blockManager.diskBlockManager.getAllFiles()
    all.map(_.getName).filter(_.startsWith("temp_local_")).toSet
  }
}
