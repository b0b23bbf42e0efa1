package lotan.messenger

import java.nio.channels.{SelectionKey, Selector}
import java.util.concurrent.{CompletableFuture, ExecutionException, LinkedBlockingQueue, TimeUnit}

import scala.annotation.tailrec
import scala.util.control.NonFatal

import org.zeromq.{SocketType, ZContext, ZEvent, ZMQ, ZMonitor}

/** A DEALER socket in a thread of its own.
  *
  * Spark interrupts the threads of tasks that it kills, and an interrupt in the wrong moment closes the pipes by which JeroMQ's
  * threads wake each other, and with them every socket of the process. So no task's thread ever touches a socket.
  *
  * Throws MessengerError if the address or a key is malformed. Connecting goes on in the background.
  */
final private[messenger] class SocketLink(
    context: ZContext,
    endpoint: Endpoint,
    identity: Array[Byte],
    settings: Settings
) extends Link {
  import SocketLink._

  private val outgoing = new LinkedBlockingQueue[Seq[Array[Byte]]](settings.highWaterMark)
  private val incoming = new LinkedBlockingQueue[Either[Throwable, Arrival]]
  private val selector = Selector.open()
  private val connected = new CompletableFuture[Unit]
  @volatile private var refused: Option[String] = None
  @volatile private var closing: Option[Double] = None // seconds that it may take

  private val thread = new Thread(() => run(), s"lotan-${new String(identity)}")
  thread.setDaemon(true)
  thread.start()
  try connected.get()
  catch { case error: ExecutionException => throw error.getCause }

  override def send(to: Array[Byte], frames: Seq[Array[Byte]]): Unit = {
    val message = to +: frames
    val taken = outgoing.offer(message) || // an interrupted task's last word goes out too
      outgoing.offer(message, (settings.connectSeconds * 1000).toLong, TimeUnit.MILLISECONDS)
    if (!taken)
      throw new DeadlineError(
        s"the connection to the Router at ${endpoint.address} took no message for ${settings.connectSeconds} s" +
          " (connect_seconds): the Router is gone or stuck"
      )
    val _ = selector.wakeup()
  }

  override def receive(seconds: Double): Option[Arrival] = {
    val next = if (seconds <= 0) incoming.poll() else incoming.poll((seconds * 1e6).toLong, TimeUnit.MICROSECONDS)
    if (incoming.size == settings.highWaterMark - 1) selector.wakeup() // there is room again
    Option(next).map {
      case Right(arrival) => arrival
      case Left(error) =>
        incoming.put(next) // for whoever asks again
        throw new MessengerError(s"the connection to the Router at ${endpoint.address} failed: $error")
    }
  }

  override def refusal: Option[String] = refused

  override def close(lingerSeconds: Double): Unit = {
    if (closing.isEmpty) closing = Some(lingerSeconds)
    val _ = selector.wakeup()
  }

  def close(): Unit = close(settings.lingerSeconds)

  def isClosing: Boolean = closing.isDefined

  def ended: Boolean = !thread.isAlive

  /** Waits until the socket is closed. */
  def awaitEnd(): Unit = thread.join((settings.lingerSeconds * 1000).toLong + Idle)

  // -- in the socket's thread ------------------------------------------------------------------------------------------

  private def run(): Unit =
    try {
      val socket = open()
      try {
        connected.complete(())
        while (closing.isEmpty) if (!move(socket)) sleep(Idle)
        flush(socket, System.nanoTime() + (closing.get * 1e9).toLong)
      } finally {
        socket.setLinger((closing.getOrElse(0.0) * 1000).toInt)
        socket.close()
      }
      incoming.put(Left(new MessengerError("it was closed")))
    } catch {
      case NonFatal(error) =>
        connected.completeExceptionally(error)
        incoming.put(Left(error))
    } finally selector.close()

  private def open(): ZMQ.Socket = {
    val socket = context.createSocket(SocketType.DEALER)
    try {
      if (!Address.matches(endpoint.address)) throw new IllegalArgumentException("no such address")
      configure(socket)
      for (keys <- endpoint.keys) secure(socket, keys)
      socket.setEventHook((event: ZEvent) => hear(event), RefusalCodes)
      socket.connect(endpoint.address)
      socket.getFD.register(selector, SelectionKey.OP_READ)
      socket
    } catch {
      case NonFatal(error) =>
        socket.close()
        throw new MessengerError(
          s"cannot connect to '${endpoint.address}': ${error.getMessage}; expected tcp://host:port and keys in Z85"
        )
    }
  }

  private def configure(socket: ZMQ.Socket): Unit = {
    socket.setIdentity(identity)
    socket.setLinger((settings.lingerSeconds * 1000).toInt)
    socket.setSndHWM(settings.highWaterMark)
    socket.setRcvHWM(settings.highWaterMark)
    socket.setMaxMsgSize(math.max(settings.limits.frameBytes, settings.limits.headerBytes).toLong)
    socket.setMsgAllocationHeapThreshold(0) // always in arrays, which are handed on as they are
    socket.setHandshakeIvl(Handshake)
    val _ = socket.setTCPKeepAlive(1)
  }

  private def secure(socket: ZMQ.Socket, keys: Keys): Unit = {
    socket.setCurveServerKey(decoded(keys.server))
    socket.setCurvePublicKey(decoded(keys.public))
    val _ = socket.setCurveSecretKey(decoded(keys.secret))
  }

  private def decoded(key: String): Array[Byte] = {
    require(key.length == 40, s"a key has ${key.length} characters, expected 40")
    ZMQ.Curve.z85Decode(key)
  }

  private def hear(event: ZEvent): Unit = refused = Refusals.get(event.getEvent).orElse(refused)

  /** Sends and receives what it can without waiting. Returns true if there was anything. */
  private def move(socket: ZMQ.Socket): Boolean = {
    var moved = false
    while (Option(outgoing.peek()).exists(sent(socket, _))) {
      outgoing.poll()
      moved = true
    }
    var sender = next(socket)
    while (sender != null) {
      incoming.put(Right(new Arrival(sender, rest(socket, Vector.empty))))
      moved = true
      sender = if (outgoing.isEmpty) next(socket) else null
    }
    moved
  }

  private def sent(socket: ZMQ.Socket, frames: Seq[Array[Byte]]): Boolean = {
    val last = frames.length - 1
    // Once the first frame is taken, so are the others.
    frames.indices.forall(i => socket.send(frames(i), if (i < last) ZMQ.DONTWAIT | ZMQ.SNDMORE else ZMQ.DONTWAIT))
  }

  /** Returns the first frame of the next message, or null. Messages that are not taken wait in the socket. */
  private def next(socket: ZMQ.Socket): Array[Byte] =
    if (incoming.size < settings.highWaterMark) socket.recv(ZMQ.DONTWAIT) else null

  @tailrec private def rest(socket: ZMQ.Socket, frames: Vector[Array[Byte]]): Vector[Array[Byte]] =
    if (socket.hasReceiveMore) rest(socket, frames :+ socket.recv()) else frames

  private def flush(socket: ZMQ.Socket, deadline: Long): Unit =
    while (!outgoing.isEmpty && System.nanoTime() < deadline) if (!move(socket)) sleep(Flush)

  private def sleep(millis: Long): Unit = {
    selector.select(millis)
    selector.selectedKeys.clear()
  }
}

private object SocketLink {
  private val Idle = 1000L // milliseconds; what happens meanwhile wakes the thread
  private val Flush = 10L

  // Milliseconds for ZeroMQ's greeting, after which it connects anew: JeroMQ 0.6.0 now and then leaves one unread, on a busy
  // machine up to one in ten, and would wait for half a minute.
  private val Handshake = 1000

  private val Address = "tcp://.+:[0-9]{1,5}|ipc://.+".r

  private val handshake = "the security handshake failed: keys on one side only, or the wrong Router key"

  private val RefusalCodes =
    ZMQ.HANDSHAKE_FAILED_AUTH | ZMQ.HANDSHAKE_FAILED_PROTOCOL | ZMQ.HANDSHAKE_FAILED_NO_DETAIL

  private val Refusals: Map[ZMonitor.Event, String] = Map(
    ZMonitor.Event.HANDSHAKE_FAILED_AUTH -> "it does not accept this peer's key",
    ZMonitor.Event.HANDSHAKE_FAILED_PROTOCOL -> handshake,
    ZMonitor.Event.HANDSHAKE_FAILED_NO_DETAIL -> handshake
  )
}
