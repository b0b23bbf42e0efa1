"""Plans that are compared, measured and calibrated rather than trained."""
