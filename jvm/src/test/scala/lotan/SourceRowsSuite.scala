package lotan

import org.scalatest.funsuite.AnyFunSuite

class SourceRowsSuite extends AnyFunSuite with LocalSpark {

  test("every edge finds the row of its source, by a shuffle and through one heap") {
    EdgeSamples.each(spark) { samples =>
      val x = samples.graph.read(samples.blocks, samples.column("x"))
      for (shared <- Seq(false, true)) {
        val set = samples.set
        val found = samples.blocks.zipPartitions(samples.sources("x", shared)) { (ofBlock, ofSources) =>
          val (order, sources) = (ofBlock.next().edges(set).order, ofSources.next())
          val rows = order.matrix.columns.flatMap { source =>
            sources.array(source).slice(sources.offset(source), sources.offset(source) + sources.width)
          }
          Iterator.single(new Rows(sources.width, rows))
        }
        for (((src, _, _), row) <- samples.read(found)) assert(row.toSeq == x(src).toSeq)
      }
    }
  }
}
