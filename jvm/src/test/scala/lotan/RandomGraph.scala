package lotan

import scala.jdk.CollectionConverters._
import scala.util.Random

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{DataFrame, Row, SparkSession}
import org.apache.spark.sql.types.{ArrayType, FloatType, LongType, StringType, StructField, StructType}
import org.apache.spark.unsafe.types.UTF8String

/** A small graph with all that is awkward: parallel edges, self-loops, isolated vertices, a hub. Vertices are 0 until `count`.
  *
  * @param edges
  *   source, destination, weight
  * @param text
  *   whether ids are strings
  */
final case class RandomGraph(count: Int, edges: Seq[(Int, Int, Float)], text: Boolean) {

  /** Far apart and not in the order of the vertices. */
  def id(vertex: Int): Any = if (text) s"vertex $vertex" else (vertex * 1000003L) ^ 5L

  def load(
      spark: SparkSession,
      partitions: Int,
      columns: Map[String, Array[Array[Float]]],
      hubEdges: Int = Hubs.LeastEdges
  ): LoadedGraph =
    Load(partitions, columns.keys.toSeq, Some("weight"), hubEdges)(vertices(spark, columns), edgeTable(spark))

  /** The other way round: a hub of in-edges becomes one of out-edges. */
  def turned: RandomGraph = copy(edges = edges.map { case (src, dst, weight) => (dst, src, weight) })

  def vertices(spark: SparkSession, columns: Map[String, Array[Array[Float]]]): DataFrame = {
    val fields = StructField("id", if (text) StringType else LongType) +:
      columns.keys.toSeq.map(StructField(_, ArrayType(FloatType)))
    val rows = (0 until count).map(v => Row.fromSeq(id(v) +: columns.values.toSeq.map(_(v).toSeq)))
    spark.createDataFrame(rows.asJava, StructType(fields))
  }

  def edgeTable(spark: SparkSession): DataFrame = edgeTable(spark, _ => Array.empty).drop("data")

  /** Edges with a column `data` besides: the numbers of an edge. */
  def edgeTable(spark: SparkSession, data: ((Int, Int, Float)) => Array[Float]): DataFrame = {
    import spark.implicits._
    val names = Seq("src", "dst", "weight", "data")
    if (text) edges.map(e => (id(e._1).toString, id(e._2).toString, e._3, data(e))).toDF(names: _*)
    else edges.map(e => (id(e._1).asInstanceOf[Long], id(e._2).asInstanceOf[Long], e._3, data(e))).toDF(names: _*)
  }

  /** A column as it is in blocks, by vertex. */
  def read(blocks: RDD[Block], column: RDD[Rows]): Array[Array[Float]] = {
    val vertexOf = (0 until count).map(v => (if (text) UTF8String.fromString(id(v).toString) else id(v)) -> v).toMap
    val found = new Array[Array[Float]](count)
    blocks.zip(column).collect().foreach { case (block, rows) =>
      assert(rows.count == block.count)
      for (row <- 0 until block.count) {
        val id: Any = block.ids match {
          case ids: LongIds => ids.values(row)
          case ids: TextIds => ids.values(row)
        }
        assert(found(vertexOf(id)) == null, "a vertex is in two places")
        found(vertexOf(id)) = rows.values.slice(row * rows.width, (row + 1) * rows.width)
      }
    }
    assert(found.forall(_ != null), "a vertex is lost")
    found
  }

  /** The edges of a set, by definition. The type of an edge is the parity of its source. */
  def edgesOf(set: EdgeSet): Seq[(Int, Int, Float)] = {
    val own = edges.filter(edge => set.relation.forall(_ == edge._1 % 2))
    if (!set.loops) own
    else {
      val loops = (0 until count).map { v =>
        val weights = own.collect { case (`v`, `v`, weight) => weight }
        (v, v, if (weights.isEmpty) 1f else weights.max) // the last one, in the order of weights
      }
      own.filter(e => e._1 != e._2) ++ loops
    }
  }

  /** Hops from every vertex to one of `targets`, by definition; `beyond` where there are at least as many, or no way. */
  def levels(targets: Set[Int], beyond: Int): Array[Int] = {
    val found = Array.tabulate(count)(v => if (targets(v)) 0 else beyond)
    for (hops <- 1 until beyond) {
      val next = edges.collect { case (src, dst, _) if found(dst) == hops - 1 && found(src) > hops => src }
      next.foreach(found(_) = hops)
    }
    found
  }

  /** A @ x, or its transpose, in double precision. */
  def propagate(x: Array[Array[Float]], set: EdgeSet, weighted: Boolean, reverse: Boolean): Array[Array[Double]] = {
    val out = Array.fill(count)(new Array[Double](x.head.length))
    edgesOf(set).foreach { case (src, dst, weight) =>
      val (from, to) = if (reverse) (dst, src) else (src, dst)
      for (j <- x.head.indices) out(to)(j) += (if (weighted) weight.toDouble else 1.0) * x(from)(j)
    }
    out
  }
}

object RandomGraph {
  def apply(seed: Int, count: Int, edgeCount: Int, text: Boolean = false): RandomGraph = {
    val random = new Random(seed)
    val connected = math.max(1, count * 3 / 4) // the others are isolated
    val plain = Seq.fill(edgeCount)((random.nextInt(connected), random.nextInt(connected), random.nextFloat() - 0.3f))
    val hub = Seq.fill(edgeCount)((random.nextInt(connected), 0, random.nextFloat()))
    val parallel = plain.take(edgeCount / 3).map(edge => edge.copy(_3 = random.nextFloat()))
    val loops = Seq.fill(edgeCount / 5)(random.nextInt(connected)).map(v => (v, v, random.nextFloat()))
    RandomGraph(count, random.shuffle(plain ++ hub ++ parallel ++ loops), text)
  }

  def column(seed: Int, count: Int, width: Int): Array[Array[Float]] = {
    val random = new Random(seed)
    Array.fill(count, width)(random.nextFloat() * 2 - 1)
  }

  /** The first rows of a column: those within a level. */
  def cut(blocks: RDD[Block], column: RDD[Rows], within: Int): RDD[Rows] =
    blocks.zipPartitions(column) { (ofBlock, ofRows) =>
      val rows = ofRows.next()
      Iterator.single(new Rows(rows.width, rows.values.take(ofBlock.next().rows(within) * rows.width)))
    }

  def close(actual: Array[Array[Float]], expected: Array[Array[Double]]): Boolean =
    actual.length == expected.length && actual.zip(expected).forall { case (a, e) =>
      a.length == e.length && a.zip(e).forall { case (x, y) => math.abs(x - y) <= 1e-4 * (1 + math.abs(y)) }
    }
}
