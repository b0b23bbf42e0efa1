"""The training of one model, epoch by epoch."""
