"""Choices by cost, in estimated seconds: between plans, engines and passes, of which each gives the same answer."""
