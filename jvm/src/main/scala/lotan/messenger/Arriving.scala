package lotan.messenger

/** Finds out whether the tensors of a message have its checksum. Those that have been copied were hashed then, so that their
  * bytes come from memory once.
  */
final private[messenger] class Arriving(kind: Kind, checksum: Long) {
  private var tensors = Iterable.empty[Received]
  private lazy val whole = Frames.checksum(tensors.map(_.checksum)) == checksum

  /** Those that will be checked. */
  def expect(arrived: Iterable[Received]): Unit = tensors = arrived

  /** Throws FrameError if the tensors were corrupted on the way. */
  def check(): Unit =
    if (!whole) throw new FrameError(s"the tensors of a $kind message do not have its checksum: corrupted on the way")
}
