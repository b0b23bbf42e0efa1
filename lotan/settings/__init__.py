"""What a user may ask for, checked."""
