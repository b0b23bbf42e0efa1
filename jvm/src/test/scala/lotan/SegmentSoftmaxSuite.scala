package lotan

import org.scalatest.funsuite.AnyFunSuite

import EdgeSamples.Heads

class SegmentSoftmaxSuite extends AnyFunSuite with LocalSpark {

  test("shares of each destination's in-edges, also of scores whose exponential overflows") {
    EdgeSamples.each(spark) { samples =>
      def score(edge: (Int, Int, Float)) = EdgeSamples.numbers(edge, Heads).map(_ * 30)
      val found = samples.read(SegmentSoftmax(samples.scope)(samples.blocks, samples.edgeColumn(Heads)(score)))
      for ((_, group) <- found.groupBy(_._1._2); h <- 0 until Heads) {
        val greatest = group.map(e => score(e._1)(h)).max.toDouble
        val total = group.map(e => math.exp(score(e._1)(h) - greatest)).sum
        for ((edge, shares) <- group) assert(math.abs(shares(h) - math.exp(score(edge)(h) - greatest) / total) < 1e-5)
      }
    }
  }

  test("the gradient is the derivative: differences of <softmax, g>") {
    EdgeSamples.each(spark) { samples =>
      import samples.blocks
      def score(edge: (Int, Int, Float)) = EdgeSamples.numbers(edge, Heads).map(_ / 4)
      def direction(edge: (Int, Int, Float)) = Array.tabulate(Heads)(h => ((edge._1 + 3 * edge._2 + h) % 5 - 2) * 1e-2f)
      def outer(edge: (Int, Int, Float)) = Array.tabulate(Heads)(h => ((2 * edge._1 + edge._2 + h) % 7 - 3).toFloat)
      def moved(step: Float) = {
        val column = samples.edgeColumn(Heads)(e => score(e).zip(direction(e)).map { case (s, d) => s + step * d })
        samples.read(SegmentSoftmax(samples.scope)(blocks, column))
      }
      def loss(found: Seq[((Int, Int, Float), Array[Float])]) =
        EdgeSamples.inner(found.map(_._2), found.map(e => outer(e._1)))
      val softmax = SegmentSoftmax(samples.scope)(blocks, samples.edgeColumn(Heads)(score))
      val gradient = samples.read(
        SegmentSoftmaxGradient(samples.scope)(blocks, softmax, samples.edgeColumn(Heads)(outer))
      )
      val slope = (loss(moved(1)) - loss(moved(-1))) / 2
      val expected = EdgeSamples.inner(gradient.map(_._2), gradient.map(e => direction(e._1)))
      assert(math.abs(slope - expected) < 1e-3 * (1 + math.abs(slope)))
    }
  }
}
