package lotan.messenger

import scala.util.Try

/** The modules still in incubation that this JVM has. */
private[lotan] object Incubator {

  /** Vector operations, for whose module Spark's launcher asks. */
  val hasVectors: Boolean = Try(Class.forName("jdk.incubator.vector.FloatVector")).isSuccess
}
