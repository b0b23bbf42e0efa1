"""Choices by estimated seconds: between plans, engines and passes that all give the same answer, and within rules."""
