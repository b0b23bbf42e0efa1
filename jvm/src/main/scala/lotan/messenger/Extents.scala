package lotan.messenger

import java.util

/** Free extents between two offsets: first fit, so that the same few bytes are used again and again, while the cache has them.
  *
  * Sizes are the caller's to round up. Does not look at the memory itself.
  */
final private[messenger] class Extents(start: Int, until: Int) {
  private val freeUntil = new util.TreeMap[Int, Int] // start -> end; sorted, never touching each other
  private var last = until
  if (until > start) { val _ = freeUntil.put(start, until) }

  /** The second offset. */
  def end: Int = last

  /** Bytes that nobody has. */
  def free: Int = {
    var sum = 0
    freeUntil.forEach((from, to) => sum += to - from)
    sum
  }

  /** The offset of that many bytes (at least one), or None where they do not fit. */
  def take(size: Int): Option[Int] = {
    var entry = freeUntil.firstEntry
    while (entry != null && entry.getValue - entry.getKey < size) entry = freeUntil.higherEntry(entry.getKey)
    Option(entry).map { found =>
      freeUntil.remove(found.getKey)
      if (found.getValue - found.getKey > size) freeUntil.put(found.getKey + size, found.getValue)
      found.getKey
    }
  }

  /** Frees what was taken. Once: what is free twice would be taken twice. */
  def give(offset: Int, size: Int): Unit = {
    var from = offset
    var to = offset + size
    val after = freeUntil.ceilingEntry(offset)
    if (after != null && after.getKey == to) {
      to = after.getValue
      freeUntil.remove(after.getKey)
    }
    val before = freeUntil.lowerEntry(offset)
    if (before != null && before.getValue == from) from = before.getKey
    val _ = freeUntil.put(from, to)
  }

  /** There is more, up to a larger end. */
  def extend(end: Int): Unit = {
    val from = last
    last = end
    give(from, end - from)
  }
}
