package lotan.messenger

/** Rows for a worker. Their tensors must not change until the chunk is returned and its group is closed.
  *
  * `static` and `epochKept` name tensors that the worker may still have from an earlier chunk with this run, partition and index
  * under the same tensor name: these are offered by checksum first and sent when the worker asks. A kept tensor is replaced when
  * one of other content is offered under its name, so both sets are safe for anything; they differ in when the worker lets go:
  * `epochKept` ones at the first sign of the next epoch. `spare` names tensors that the worker asks for only if it has lost
  * what it made of them earlier.
  *
  * @param index
  *   in the partition, ascending
  * @param digest
  *   of the vertex ids in order, see `Digest`; comes back with the result and is compared
  * @param resultBytes
  *   bytes of shared memory that the result will take; 0 if they are not known
  */
final case class OutgoingChunk(
    index: Int,
    firstRow: Int,
    rows: Int,
    digest: Long,
    tensors: Seq[(String, Tensor)],
    static: Set[String] = Set.empty,
    epochKept: Set[String] = Set.empty,
    resultBytes: Long = 0,
    spare: Set[String] = Set.empty
) {

  /** Returns true if a tensor is offered by checksum. */
  def offered(name: String): Boolean = static(name) || epochKept(name)

  /** The tensor of that name. */
  def tensor(name: String): Option[Tensor] = tensors.collectFirst { case (`name`, tensor) => tensor }
}

/** The result of a chunk. Its tensors are valid until the iterator is asked for the next chunk. */
final class ReturnedChunk private[messenger] (chunk: OutgoingChunk, message: Incoming) {
  def index: Int = chunk.index
  def firstRow: Int = chunk.firstRow
  def rows: Int = chunk.rows
  def digest: Long = chunk.digest
  def tensors: Map[String, Received] = message.tensors

  /** Checks the tensors that nobody has read. Throws FrameError if they were corrupted on the way. */
  private[messenger] def check(): Unit = message.check()
}
