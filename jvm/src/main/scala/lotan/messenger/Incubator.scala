package lotan.messenger

import scala.util.Try

/** What this JVM has of modules that are still in incubation. */
private[lotan] object Incubator {

  /** Vector operations, for whose module Spark's launcher asks. */
  val hasVectors: Boolean = Try(Class.forName("jdk.incubator.vector.FloatVector")).isSuccess
}
