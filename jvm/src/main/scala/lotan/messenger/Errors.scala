package lotan.messenger

/** The root: something between Dealer, Router, workers and coordinator failed. Each error says what happened, with which peer,
  * and what to do.
  */
class MessengerError(message: String) extends RuntimeException(message)

/** Bytes that are no message of this protocol version, or that exceed a limit, or that were corrupted on the way. */
class FrameError(message: String) extends MessengerError(message)

/** A message says that a tensor is in shared memory which this process has not. */
final class UnmappedError(message: String) extends FrameError(message)

/** The Router was reached and refused this peer: wrong or missing keys, or a role that is taken. */
final class RefusedError(message: String) extends MessengerError(message)

/** A wait ended at its deadline; the message names the peer waited for and the setting. */
final class DeadlineError(message: String) extends MessengerError(message)

/** The Router was connected and then fell silent. */
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

/** Work for an epoch that is over, or has not begun: a task that should no longer run. It touched nothing. */
final class StaleEpochError(message: String, stage: String, partition: Int)
    extends RemoteError(message, stage, partition)

/** Two attempts of one partition gave different results, where equal ones were promised. */
final class ConflictError(message: String, stage: String, partition: Int) extends RemoteError(message, stage, partition)
