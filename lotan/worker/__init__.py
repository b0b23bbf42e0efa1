"""The process that runs stages for others."""
