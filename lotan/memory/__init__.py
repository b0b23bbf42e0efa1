"""How much memory there is, how much may be taken, and how much was."""
