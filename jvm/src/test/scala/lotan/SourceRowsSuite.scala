package lotan

import org.scalatest.funsuite.AnyFunSuite

class SourceRowsSuite extends AnyFunSuite with LocalSpark {

  test("every edge finds the row of its source, by a shuffle and through one heap") {
    EdgeSamples.each(spark) { samples =>
      val x = samples.graph.read(samples.blocks, samples.column("x"))
      for (shared <- Seq(false, true)) {
        val (scope, set) = (samples.scope, samples.set)
        val found = samples.blocks.zipPartitions(samples.sources("x", shared)) { (ofBlock, ofSources) =>
          val (block, sources) = (ofBlock.next(), ofSources.next())
          val rows = scope.order(block).matrix.columns.flatMap { source =>
            sources.array(source).slice(sources.offset(source), sources.offset(source) + sources.width)
          }
          Iterator.single(new Rows(sources.width, rows.padTo(block.edges(set).order.edges * sources.width, 0f)))
        }
        for (((src, _, _), row) <- samples.read(found)) assert(row.toSeq == x(src).toSeq)
      }
    }
  }

  test("sources of edges that end farther off have no row, and none is sent for them") {
    EdgeSamples.each(spark) { samples =>
      val read = Block.farther(samples.within)
      val near = samples.blocks.map(_.rows(read)).collect()
      for (shared <- Seq(false, true)) {
        val counts = samples.blocks.zipPartitions(samples.sources("x", shared)) { (ofBlock, ofSources) =>
          val (block, sources) = (ofBlock.next(), ofSources.next())
          val there = (0 until block.sources).filter(sources.offset(_) >= 0)
          Iterator.single((there.count(_ < block.count), there.count(_ >= block.count)))
        }
        val (own, halo) = counts.collect().unzip
        val sent = samples.blocks.map(block => block.send.map(_.count(_ < block.rows(read))).sum).collect()
        assert(own.toSeq == near.toSeq && halo.sum == sent.sum)
        if (!shared) {
          val brought = Exchange.halo(samples.blocks, samples.column("x"), read).map(_.map(_.length).sum).collect()
          assert(brought.sum == sent.sum * EdgeSamples.Width)
        }
      }
    }
  }

  test("a column that lacks rows of sources is refused") {
    EdgeSamples.each(spark) { samples =>
      val none = samples.column("x").map(rows => Rows.zeros(0, rows.width))
      for (shared <- Seq(false, true)) {
        val sources = SourceRows(samples.blocks, none, shared, samples.within)
        assert(intercept[Exception](sources.count()).getMessage.contains("rows in a partition of"))
      }
    }
  }
}
