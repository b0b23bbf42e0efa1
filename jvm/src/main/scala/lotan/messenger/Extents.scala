package lotan.messenger

import java.util

/** The free extents between two offsets. They are taken by first fit, so that the same few bytes are used while in the cache.
  *
  * The caller rounds sizes up. The memory itself is never read or written.
  */
final private[messenger] class Extents(start: Int, until: Int) {
  private val freeUntil = new util.TreeMap[Int, Int] // start -> end; sorted, never touching each other
  private var last = until
  if (until > start) { val _ = freeUntil.put(start, until) }

  /** The second offset. */
  def end: Int = last

  /** The number of free bytes. */
  def free: Int = {
    var sum = 0
    freeUntil.forEach((from, to) => sum += to - from)
    sum
  }

  /** Takes bytes, at least one. Returns their offset, or None if no free extent is long enough. */
  def take(size: Int): Option[Int] = {
    var entry = freeUntil.firstEntry
    while (entry != null && entry.getValue - entry.getKey < size) entry = freeUntil.higherEntry(entry.getKey)
    Option(entry).map { found =>
      freeUntil.remove(found.getKey)
      if (found.getValue - found.getKey > size) freeUntil.put(found.getKey + size, found.getValue)
      found.getKey
    }
  }

  /** Frees bytes that were taken. Freeing the same bytes twice would let them be taken twice. */
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

  /** Adds the bytes up to `end` after the region has grown. */
  def extend(end: Int): Unit = {
    val from = last
    last = end
    give(from, end - from)
  }
}
