package lotan

import org.apache.spark.rdd.{RDD, ShuffledRDD}
import org.apache.spark.{Aggregator, TaskContext}

/** One shuffle: every partition sends at most one parcel to each other one. */
object Exchange {

  /** Returns what each partition received, by sender: `[partitions]`, null for a partition that sent nothing.
    *
    * Parcels are therefore added up in the same order, whenever they arrived.
    *
    * @param parcels
    *   keyed by the partition that they are for
    */
  def apply(parcels: RDD[(Int, Parcel)], partitions: Int): RDD[Array[Parcel]] = {
    val shuffled = of(parcels, partitions)
    if (partitions <= WrittenOnce) shuffled.setAggregator(new PassedOn).setMapSideCombine(true)
    shuffled.values.mapPartitions { received =>
      val bySender = new Array[Parcel](partitions)
      received.foreach { parcel =>
        require(bySender(parcel.sender) == null, s"two parcels from partition ${parcel.sender}")
        bySender(parcel.sender) = parcel
      }
      Iterator.single(bySender)
    }
  }

  /** Brings parcels to their targets, in any order. */
  def shuffle(parcels: RDD[(Int, Parcel)], partitions: Int): RDD[Parcel] = of(parcels, partitions).values

  private def of(parcels: RDD[(Int, Parcel)], partitions: Int): ShuffledRDD[Int, Parcel, Parcel] =
    new ShuffledRDD[Int, Parcel, Parcel](parcels, Placement(partitions)).setSerializer(new ParcelSerializer)

  /** The rows of `column` that each block's halo needs: `[partitions]` arrays of rows, by owner, empty where none are needed.
    *
    * The column is read here and, usually, by whoever uses the halo: persist it, or it is computed twice.
    *
    * @param within
    *   level up to which they are needed: those of the halo that come first
    */
  def halo(blocks: RDD[Block], column: RDD[Rows], within: Int = Block.All): RDD[Array[Array[Float]]] = {
    val packed = blocks.zipPartitions(column) { (ofBlock, ofColumn) =>
      val block = ofBlock.next()
      val rows = ofColumn.next()
      Propagate.check(block, rows, within)
      val count = block.rows(within)
      Iterator.range(0, block.partitions).map(to => to -> below(block.send(to), count)).filter(_._2.nonEmpty).map {
        case (to, sent) => to -> new Parcel(block.partition, Nil, rows.width, rows.values, Some(sent))
      }
    }
    Exchange(packed, blocks.getNumPartitions).map(
      _.map(parcel => if (parcel == null) Parcel.NoValues else parcel.values)
    )
  }

  /** Returns the first of some ascending numbers. */
  private[lotan] def below(ascending: Array[Int], count: Int): Array[Int] =
    if (ascending.isEmpty || ascending.last < count) ascending else ascending.takeWhile(_ < count)

  /** Brings what was computed for the halo of each block to the owners of those vertices.
    *
    * @param partial
    *   for a block: the width, and for each owner whose vertices are in its halo the rows `[halo of that owner x width]`
    * @return
    *   for each block, by sender: one row for each of `send(sender)`, null where nothing was sent
    */
  def partials(blocks: RDD[Block], partial: RDD[Array[Rows]]): RDD[Array[Parcel]] = {
    val packed = blocks.zipPartitions(partial) { (ofBlock, ofPartial) =>
      val block = ofBlock.next()
      val rows = ofPartial.next()
      Iterator.range(0, block.partitions).filter(rows(_) != null).map { owner =>
        owner -> new Parcel(block.partition, Nil, rows(owner).width, rows(owner).values)
      }
    }
    Exchange(packed, blocks.getNumPartitions)
  }

  /** Partitions up to which parcels are written once: Spark's sorter considers with every 32nd record whether to put them on the
    * disk, and a task has fewer.
    */
  private[lotan] val WrittenOnce = 31

  /** Combines nothing, for no two parcels of a task are for one target. Spark's way with shuffles that combine is to sort records
    * by target and to write each where it is to stay; without, it writes a file for each target and then copies these into one,
    * which took a third of an exchange's time.
    */
  final private class PassedOn extends Aggregator[Int, Parcel, Parcel](parcel => parcel, refuse, refuse) {
    override def combineCombinersByKey(
        parcels: Iterator[_ <: Product2[Int, Parcel]],
        context: TaskContext
    ): Iterator[(Int, Parcel)] = parcels.map(one => one._1 -> one._2)
  }

  private def refuse(first: Parcel, second: Parcel): Parcel =
    throw new IllegalArgumentException(s"two parcels from partition ${first.sender}")
}
