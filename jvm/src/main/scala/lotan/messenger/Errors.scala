package lotan.messenger

/** Something between Dealer, Router, workers and coordinator failed. All other errors are kinds of this one. Each says what
  * happened, with which peer, and what to do.
  */
class MessengerError(message: String) extends RuntimeException(message)

/** Bytes are no message of this protocol version, exceed a limit, or were corrupted on the way. */
class FrameError(message: String) extends MessengerError(message)

/** A tensor is in shared memory that this process cannot map. */
final class UnmappedError(message: String) extends FrameError(message)

/** The Router refused this peer, because its keys are wrong or missing or its role is taken. */
final class RefusedError(message: String) extends MessengerError(message)

/** A wait ended at its deadline. The error's text names the peer and the setting. */
final class DeadlineError(message: String) extends MessengerError(message)

/** The Router answered at first and then fell silent. */
final class RouterLostError(message: String) extends MessengerError(message)

/** A peer reported a failure.
  *
  * @param stage
  *   name of the stage that it came from
  * @param partition
  *   its partition
  */
class RemoteError(message: String, val stage: String, val partition: Int) extends MessengerError(message)

/** The Router had no worker to give a chunk to. */
final class NoWorkerError(message: String, stage: String, partition: Int) extends RemoteError(message, stage, partition)

/** Work was sent for an epoch that is not open, by a task that should no longer run. It changed nothing. */
final class StaleEpochError(message: String, stage: String, partition: Int)
    extends RemoteError(message, stage, partition)

/** Two attempts of one partition had different results, although equal attempts must have equal results. */
final class ConflictError(message: String, stage: String, partition: Int) extends RemoteError(message, stage, partition)
