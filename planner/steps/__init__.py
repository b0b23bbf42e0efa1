"""The steps of a plan, one kind per file: its inputs and outputs, its adjoint, its work, and its text in explain."""
