"""From model, graph and settings to an engine and a plan."""
