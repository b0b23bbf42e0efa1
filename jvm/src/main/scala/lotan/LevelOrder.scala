package lotan

import java.util

import scala.jdk.CollectionConverters._

import org.apache.spark.rdd.RDD
import org.apache.spark.storage.StorageLevel

/** The vertices of every block in the order of their levels: those that a pruned step needs come first.
  *
  * A vertex's level is the fewest hops along edges from it to a target. Vertices of one level stay in their order; and
  * so does a halo by owner, so that what a block sends is the first part of a list, too.
  *
  * @param deepest
  *   level that is told from those beyond; the next one is counted as well, for sums over in-edges read it
  * @param allSplits
  *   whether the vertices of any split are targets; else those in training
  */
final case class LevelOrder(deepest: Int, allSplits: Boolean = false) {
  private val beyond = deepest + 2f

  /** The same graph, computed and cached.
    *
    * @param graph
    *   with the column `split`; it is closed, or if this fails as well
    */
  def apply(graph: LoadedGraph): LoadedGraph = {
    val found = levels(graph)
    try {
      val own = found.last
      val blocks = placed(graph.blocks, own, graph.hubs)
      val turned = graph.turned.map(placed(_, own, hubs = false).map(_.asRows))
      val columns = graph.columns.map { case (name, rows) =>
        name -> rows.zipPartitions(own)((ofRows, ofLevels) => Iterator.single(inOrder(ofRows.next(), ofLevels.next())))
      }
      val all: Seq[RDD[_]] = (blocks +: columns.values.toSeq) ++ turned
      for (one <- all) one.persist(StorageLevel.MEMORY_AND_DISK)
      try Facade.force(all.asJava)
      catch {
        case failure: Throwable =>
          all.foreach(_.unpersist(blocking = false))
          throw failure
      }
      new LoadedGraph(blocks, columns, graph.hubs, turned)
    } finally {
      found.foreach(_.unpersist(blocking = false))
      graph.close()
    }
  }

  /** The blocks with their vertices in the order of levels, of which `own` has one for each. */
  private def placed(blocks: RDD[Block], own: RDD[Rows], hubs: Boolean): RDD[Block] = {
    val halo = Exchange.halo(blocks, own)
    val rest = if (hubs) Exchange.halo(blocks.map(_.withoutHubs), own) else halo
    blocks.zipPartitions(own, halo, rest) { (ofBlock, ofLevels, ofHalo, ofRest) =>
      val levels = ofLevels.next().values
      Iterator.single(new Placed(levels, ofHalo.next(), ofRest.next(), deepest).block(ofBlock.next()))
    }
  }

  /** The levels known after each hop, as columns of width 1, persisted: the last has all. */
  private def levels(graph: LoadedGraph): Seq[RDD[Rows]] = {
    val start = graph
      .columns("split")
      .map(split => new Rows(1, split.values.map(code => if (isTarget(code)) 0f else beyond)))
    (1 to deepest + 1).scanLeft(persisted(start)) { (known, hops) =>
      val reached = known.map(rows => new Rows(1, rows.values.map(level => if (level < hops) 1f else 0f)))
      val sums = Propagate(EdgeSet.Graph, weighted = false, reverse = true)(graph.blocks, reached, shared = false)
      persisted(known.zipPartitions(sums) { (ofKnown, ofSums) =>
        val pairs = ofKnown.next().values.zip(ofSums.next().values)
        Iterator.single(
          new Rows(1, pairs.map { case (level, sum) => if (level > hops && sum > 0) hops.toFloat else level })
        )
      })
    }
  }

  private def isTarget(code: Float): Boolean = code == LevelOrder.Train || (allSplits && code > LevelOrder.Train)

  private def persisted(column: RDD[Rows]): RDD[Rows] = column.persist(StorageLevel.MEMORY_AND_DISK)

  private def inOrder(rows: Rows, levels: Rows): Rows = {
    val out = Rows.zeros(rows.count, rows.width)
    for ((from, to) <- LevelOrder.order(levels.values).zipWithIndex)
      System.arraycopy(rows.values, from * rows.width, out.values, to * rows.width, rows.width)
    out
  }
}

private object LevelOrder {
  val Train = 0f // in the column `split`

  /** Returns the positions sorted by the numbers there. Equal numbers keep their order. */
  def order(levels: Array[Float]): Array[Int] = {
    val found = Array.tabulate(levels.length)(position => levels(position).toLong << 32 | position)
    util.Arrays.sort(found)
    found.map(_.toInt)
  }
}

/** The new places of everything in a block.
  *
  * @param own
  *   levels of its vertices
  * @param halo
  *   of its halo, by owner
  * @param rest
  *   of the halo that is left without hubs
  */
final private class Placed(own: Array[Float], halo: Array[Array[Float]], rest: Array[Array[Float]], deepest: Int) {
  private val rows = LevelOrder.order(own)
  private val counts = Array.tabulate(deepest + 2)(level => own.count(_ <= level))

  def block(block: Block): Block = {
    val hubs = block.hubs
    val placeOf = inverse(rows)
    val forward = new Csr(hubs.forward.indptr, hubs.forward.columns.map(placeOf(_)), hubs.forward.weights)
    val sorted = Csr(forward.rows, forward.rowOfEach, forward.columns, forward.weights)
    val left = block.withoutHubs
    val ofLeft = inverse(sources(left, rest))
    val large = hubs.sources.zip(left.haloStart).map { case (places, start) =>
      places.map(place => ofLeft(start + place) - start).sorted
    }
    val smaller = hubs.rest.map(placed(_, rest, Hubs.none(large)))
    val own = hubs.own.map(placeOf(_))
    placed(block, halo, new Hubs(own, smaller, hubs.start, sorted, sorted.transpose(block.count), large))
  }

  private def placed(block: Block, halo: Array[Array[Float]], hubs: Hubs): Block = {
    val from = sources(block, halo)
    val to = inverse(from)
    val csr = block.graph.forward
    val matrix = Csr(block.count, csr.rowOfEach.map(to(_)), csr.columns.map(to(_)), csr.weights, csr.data)
    val graph = Edges(matrix, block.sources)
    val loops = Edges.withSelfLoops(graph, block.sources)
    val (one, other) = if (hubs.own.isEmpty) (graph, loops) else (graph.asRows, loops.asRows)
    val send = block.send.map(_.map(to(_)).sorted)
    val (ids, keys) = (block.ids.select(rows), from.map(block.sourceKeys(_)))
    new Block(block.partition, ids, keys, block.haloStart, send, one, other, hubs, counts)
  }

  /** The old number of each source, in the new order. */
  private def sources(block: Block, halo: Array[Array[Float]]): Array[Int] =
    rows ++ halo.indices.flatMap(owner => LevelOrder.order(halo(owner)).map(block.haloStart(owner) + _))

  private def inverse(order: Array[Int]): Array[Int] = {
    val places = new Array[Int](order.length)
    for (place <- order.indices) places(order(place)) = place
    places
  }
}
