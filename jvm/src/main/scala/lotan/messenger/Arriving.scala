package lotan.messenger

/** Checks that the tensors of a message have its checksum. A tensor that was copied was hashed at the same time, so that its
  * bytes come from memory once.
  */
final private[messenger] class Arriving(kind: Kind, checksum: Long) {
  private var tensors = Iterable.empty[Received]
  private lazy val whole = Frames.checksum(tensors.map(_.checksum)) == checksum

  /** The tensors that will be checked. */
  def expect(arrived: Iterable[Received]): Unit = tensors = arrived

  /** Throws FrameError if the tensors were corrupted on the way. */
  def check(): Unit =
    if (!whole) throw new FrameError(s"the tensors of a $kind message do not have its checksum: corrupted on the way")
}
