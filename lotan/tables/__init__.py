"""Row tables: learned rows in processes of their own, from which batches read and which they update."""
