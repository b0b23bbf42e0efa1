"""The memory of a job: how much is free, how much the job may use, and how much it has used."""
