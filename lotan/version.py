"""The version of Lotan, of its jar and of what it writes."""

__version__ = "0.1.0"
