package lotan

/** What one partition sends to another in a shuffle: ids, rows of numbers, or both.
  *
  * @param sender
  *   partition it comes from
  * @param ids
  *   lists of ids, all of one type
  * @param width
  *   numbers per row
  * @param values
  *   rows, one after the other
  * @param rows
  *   which rows of `values` are sent; None for all. Rows are picked while the parcel is written, so that packing makes no copy
  */
final class Parcel(
    val sender: Int,
    val ids: Seq[Ids],
    val width: Int = 1,
    val values: Array[Float] = Parcel.NoValues,
    val rows: Option[Array[Int]] = None
) extends Serializable

object Parcel {
  val NoValues: Array[Float] = Array.empty
}
