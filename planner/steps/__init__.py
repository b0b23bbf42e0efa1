"""The steps of a plan, one kind a file: what a step reads and makes, its adjoint, its work, and how explain prints it."""
