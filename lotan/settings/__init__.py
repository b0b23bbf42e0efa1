"""The settings that a user may give, and their checks."""
