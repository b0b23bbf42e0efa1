package lotan.messenger

import scala.collection.immutable.VectorMap

/** What tensors may be made of. */
object Dtype {

  /** Bytes of an element by name; all are little endian. */
  val Sizes: Map[String, Int] =
    VectorMap("float32" -> 4, "float64" -> 8, "int64" -> 8, "int32" -> 4, "int8" -> 1, "uint8" -> 1, "bool" -> 1)

  def size(dtype: String): Int = Sizes(dtype)
}
