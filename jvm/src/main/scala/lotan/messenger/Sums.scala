package lotan.messenger

import java.nio.charset.StandardCharsets.UTF_8
import java.util

import scala.collection.mutable

/** Running sums by name, in float64. The caller decides the order of addition, and with it the last bit. */
final class Sums {
  private val sums = mutable.LinkedHashMap.empty[String, Sums.Sum]

  /** Adds each tensor to the sum of its name.
    *
    * Throws MessengerError if one has another shape than the sum so far.
    */
  def add(tensors: Iterable[(String, Received)]): Unit = for ((name, tensor) <- tensors) {
    for (sum <- sums.get(name).map(Sums.tensor) if !sum.shape.sameElements(tensor.shape))
      throw new MessengerError(
        s"cannot add '$name' of shape ${Sums.show(tensor.shape)} to a sum of shape ${Sums.show(sum.shape)}"
      )
    sums(name) = sums.get(name).fold(Sums.first(tensor))(Sums.sum(_, tensor))
  }

  def tensors: Seq[(String, Tensor)] = sums.toSeq.map { case (name, sum) => name -> Sums.tensor(sum) }

  /** Returns a checksum of the names, shapes and values, in the order of the names, as Python computes it. */
  def checksum: Long = {
    val state = new Xxh3
    val byName = tensors.map { case (name, sum) => (name.getBytes(UTF_8), sum) }
    for ((name, sum) <- byName.sortWith((a, b) => util.Arrays.compareUnsigned(a._1, b._1) < 0))
      state.update(name).update(Sums.show(sum.shape).getBytes(UTF_8)).update(sum.checksum)
    state.value
  }
}

object Sums {

  /** A sum of one tensor is sent on as it came: parameters are large, and most partitions are of one group. */
  private type Sum = Either[Received, Doubles]

  private def first(tensor: Received): Sum =
    if (tensor.dtype == "float64" && tensor.whole) Left(tensor) else Right(new Doubles(tensor.toDoubles, tensor.shape))

  private def sum(before: Sum, tensor: Received): Sum = {
    val values = before.fold(_.toDoubles, _.values)
    val more = tensor.toDoubles
    var i = 0
    while (i < values.length) {
      values(i) += more(i)
      i += 1
    }
    Right(new Doubles(values, tensor.shape))
  }

  private def tensor(sum: Sum): Tensor = sum.fold(identity, identity)

  /** Returns a shape as Python writes it. */
  private def show(shape: Array[Int]): String =
    if (shape.length == 1) s"(${shape.head},)" else shape.mkString("(", ", ", ")")
}
