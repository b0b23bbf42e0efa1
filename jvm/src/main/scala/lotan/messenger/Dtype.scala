package lotan.messenger

import scala.collection.immutable.VectorMap

/** The element types of tensors. */
object Dtype {

  /** The bytes of an element, by the type's name. All types are little endian. */
  val Sizes: Map[String, Int] =
    VectorMap("float32" -> 4, "float64" -> 8, "int64" -> 8, "int32" -> 4, "int8" -> 1, "uint8" -> 1, "bool" -> 1)

  def size(dtype: String): Int = Sizes(dtype)
}
