package lotan

import org.apache.spark.rdd.{RDD, ShuffledRDD}

/** One shuffle: every partition sends at most one parcel to each other one. */
object Exchange {

  /** What each partition received, by sender: `[partitions]`, null where that partition sent nothing.
    *
    * So whoever adds up what it received does so in the same order, whenever it arrived.
    *
    * @param parcels
    *   keyed by the partition that they are for
    */
  def apply(parcels: RDD[(Int, Parcel)], partitions: Int): RDD[Array[Parcel]] =
    shuffle(parcels, partitions).mapPartitions { received =>
      val bySender = new Array[Parcel](partitions)
      received.foreach { parcel =>
        require(bySender(parcel.sender) == null, s"two parcels from partition ${parcel.sender}")
        bySender(parcel.sender) = parcel
      }
      Iterator.single(bySender)
    }

  /** Parcels where they are for, in any order. */
  def shuffle(parcels: RDD[(Int, Parcel)], partitions: Int): RDD[Parcel] =
    new ShuffledRDD[Int, Parcel, Parcel](parcels, Placement(partitions)).setSerializer(new ParcelSerializer).values

  /** The rows of `column` that each block's halo needs: `[partitions]` arrays of rows, by owner, empty where none are needed.
    *
    * The column is read here and, usually, by whoever uses the halo: persist it, or it is computed twice.
    */
  def halo(blocks: RDD[Block], column: RDD[Rows]): RDD[Array[Array[Float]]] = {
    val packed = blocks.zipPartitions(column) { (ofBlock, ofColumn) =>
      val block = ofBlock.next()
      val rows = ofColumn.next()
      Propagate.check(block, rows)
      Iterator.range(0, block.partitions).filter(block.send(_).nonEmpty).map { to =>
        to -> new Parcel(block.partition, Nil, rows.width, rows.values, Some(block.send(to)))
      }
    }
    Exchange(packed, blocks.getNumPartitions).map(
      _.map(parcel => if (parcel == null) Parcel.NoValues else parcel.values)
    )
  }

  /** The opposite way: what was computed for the halo of each block, brought to the owners of those vertices.
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
}
