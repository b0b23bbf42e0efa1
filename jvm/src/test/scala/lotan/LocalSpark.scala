package lotan

import org.apache.spark.sql.SparkSession
import org.scalatest.{BeforeAndAfterAll, Suite}

/** One local session for all suites: starting one takes longer than most tests. */
trait LocalSpark extends BeforeAndAfterAll { this: Suite =>
  protected val spark: SparkSession = LocalSpark.session

  override def afterAll(): Unit = {
    try { val _ = assert(spark.sparkContext.getPersistentRDDs.isEmpty, "a suite left cached RDDs behind") }
    finally super.afterAll()
  }
}

object LocalSpark {
  private lazy val session: SparkSession = SparkSession
    .builder()
    .master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "3")
    .config("spark.sql.codegen.wholeStage", "false") // many small plans, few rows: compiling them never pays back
    .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    .config("spark.driver.host", "localhost")
    .getOrCreate()
}
