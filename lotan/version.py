"""The version of Lotan, of its jar and of the files that it writes."""

__version__ = "0.1.0"
