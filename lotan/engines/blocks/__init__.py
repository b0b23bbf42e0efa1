"""The Graph Engine on dense blocks: the Python half of `jvm/`."""
