"""What runs beside this process: found, started and stopped."""
