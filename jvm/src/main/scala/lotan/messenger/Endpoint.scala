package lotan.messenger

/** What a peer needs to know to connect to a Router: plain data that travels to Spark tasks.
  *
  * @param address
  *   such as tcp://127.0.0.1:4711
  * @param keys
  *   where the Router asks for keys
  */
final case class Endpoint(address: String, keys: Option[Keys] = None)

/** CurveZMQ keys as Z85 text. The secret one never appears in their printed form.
  *
  * @param server
  *   the Router's public key
  * @param public
  *   this peer's
  * @param secret
  *   this peer's
  */
final case class Keys(server: String, public: String, secret: String) {
  override def toString: String = s"Keys($server,$public)"
}

object Endpoint {

  /** From Python's endpoint, in which the three keys are null or none is. */
  def of(address: String, server: String, public: String, secret: String): Endpoint =
    Endpoint(address, Option(server).map(Keys(_, public, secret)))
}
