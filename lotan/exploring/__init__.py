"""Plans that are looked at, not trained."""
