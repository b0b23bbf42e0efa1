"""The columns that stay in memory under a limit on "local", while all others lie in files."""
