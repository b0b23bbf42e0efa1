"""The results of a run: its report, its trained model and predictions."""
