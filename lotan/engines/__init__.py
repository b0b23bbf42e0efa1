"""The engines that run plans, with one interface: see `lotan.engines.base`."""
