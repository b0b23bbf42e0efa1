"""The training of many models over shared passes."""
