package lotan

import java.util.Properties

import scala.util.Using

/** The version of this jar. */
object Version {
  def read(): String = Using.resource(getClass.getResourceAsStream("/lotan/version.properties")) { file =>
    val properties = new Properties()
    properties.load(file)
    properties.getProperty("version")
  }
}
