"""The engines that run plans; see `lotan.engines.base`."""
