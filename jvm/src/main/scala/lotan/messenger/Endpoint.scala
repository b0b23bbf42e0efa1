package lotan.messenger

/** The address and keys with which a peer connects to a Router. They are plain data that travels to Spark tasks.
  *
  * @param address
  *   such as tcp://127.0.0.1:4711
  * @param keys
  *   the keys, if the Router uses them
  */
final case class Endpoint(address: String, keys: Option[Keys] = None)

/** CurveZMQ keys as Z85 text. The secret key never appears in their printed form.
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

  /** Makes an endpoint of Python's, in which all three keys are null or none is. */
  def of(address: String, server: String, public: String, secret: String): Endpoint =
    Endpoint(address, Option(server).map(Keys(_, public, secret)))
}
