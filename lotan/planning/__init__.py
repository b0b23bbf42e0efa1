"""The way from model, graph and settings to an engine and a plan."""
