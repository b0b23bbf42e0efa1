package lotan.messenger

/** One pass of one stage over one partition, the key of a commit. Two attempts are the same work, so it has no attempt number.
  *
  * @param epoch
  *   identifies the parameters: the number that the coordinator began it with
  * @param accumulates
  *   false if nothing is summed over chunks, so that a returned chunk is never sent again
  */
final case class PipeJob(
    run: String,
    epoch: Long,
    stage: String,
    mode: String,
    partition: Int,
    accumulates: Boolean
) {
  override def toString: String = s"stage '$stage' ($mode), partition $partition, epoch $epoch of run '$run'"
}
