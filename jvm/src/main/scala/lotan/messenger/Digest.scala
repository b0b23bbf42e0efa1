package lotan.messenger

import lotan.{Ids, LongIds, TextIds}

/** A digest of vertex ids in order: XXH64 of their values, or of UTF-8 strings, each preceded by its length in four bytes. */
object Digest {
  def of(ids: Ids): Long = ids match {
    case longs: LongIds => new Xxh64().update(longs.values).value
    case texts: TextIds =>
      val state = new Xxh64
      for (text <- texts.values) {
        val bytes = text.getBytes
        state.update(littleEndian(bytes.length)).update(bytes)
      }
      state.value
  }

  private def littleEndian(number: Int): Array[Byte] = Array.tabulate(4)(i => (number >>> 8 * i).toByte)
}
