package lotan.messenger

/** Values that came over the wire, as they may stand in an error: short. */
private[messenger] object Show {
  private val Longest = 80

  def apply(value: Any): String = value match {
    case text: String => s"'${text.take(Longest)}'"
    case other => String.valueOf(other).take(Longest)
  }
}
