package lotan.messenger

import java.nio.charset.StandardCharsets.UTF_8
import java.util

import scala.collection.mutable

/** Sums of named tensors in float64, in the order in which they are added: whoever adds decides the last bit. */
final class Sums {
  private val sums = mutable.LinkedHashMap.empty[String, Sums.Sum]

  /** Adds each tensor to the sum of its name.
    *
    * Throws MessengerError if one has another shape than the sum so far.
    */
  def add(tensors: Iterable[(String, Received)]): Unit = for ((name, tensor) <- tensors) {
    val values = tensor.toDoubles
    sums.get(name) match {
      case None => sums(name) = Sums.Sum(tensor.shape, values)
      case Some(sum) if !sum.shape.sameElements(tensor.shape) =>
        throw new MessengerError(
          s"cannot add '$name' of shape ${Sums.show(tensor.shape)} to a sum of shape ${Sums.show(sum.shape)}"
        )
      case Some(sum) => for (i <- values.indices) sum.values(i) += values(i)
    }
  }

  def tensors: Seq[(String, Tensor)] =
    sums.toSeq.map { case (name, sum) => name -> new Doubles(sum.values, sum.shape) }

  /** XXH64 of names, shapes and values, in the names' order: as Python computes it. */
  def checksum: Long = {
    val state = new Xxh64
    val byName = sums.toSeq.map { case (name, sum) => (name.getBytes(UTF_8), sum) }
    for ((name, sum) <- byName.sortWith((a, b) => util.Arrays.compareUnsigned(a._1, b._1) < 0))
      state.update(name).update(Sums.show(sum.shape).getBytes(UTF_8)).update(sum.values)
    state.value
  }
}

object Sums {
  private final case class Sum(shape: Array[Int], values: Array[Double])

  /** A shape as Python writes it. */
  private def show(shape: Array[Int]): String =
    if (shape.length == 1) s"(${shape.head},)" else shape.mkString("(", ", ", ")")
}
