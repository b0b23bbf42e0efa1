"""The worker process, which runs stages for the engines on Spark."""
