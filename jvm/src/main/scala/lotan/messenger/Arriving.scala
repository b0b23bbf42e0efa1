package lotan.messenger

/** Finds out whether the tensors of a message have its checksum: while they are copied, if they are in their order, so that the
  * bytes come from memory once.
  */
final private[messenger] class Arriving(kind: Kind, checksum: Long) {
  private val state = new Xxh3
  private var left = List.empty[Received]
  private var checked = false

  /** Those that will be checked. */
  def expect(tensors: Iterable[Received]): Unit = left = tensors.toList

  /** Where to hash a tensor that is about to be copied, unless it has been hashed; call `passed` then. */
  def reach(tensor: Received): Option[Xxh3] = Option.when(left.exists(_ eq tensor)) {
    while (left.head ne tensor) next()
    state
  }

  /** The tensor that was reached has been hashed. Throws FrameError if all have, and were corrupted on the way. */
  def passed(): Unit = {
    left = left.tail
    if (left.isEmpty) check()
  }

  /** Hashes what is left. Throws FrameError if the tensors were corrupted on the way. */
  def check(): Unit = if (!checked) {
    while (left.nonEmpty) next()
    if (state.value != checksum)
      throw new FrameError(s"the tensors of a $kind message do not have its checksum: corrupted on the way")
    checked = true
  }

  private def next(): Unit = {
    val _ = left.head.hash(state)
    left = left.tail
  }
}
