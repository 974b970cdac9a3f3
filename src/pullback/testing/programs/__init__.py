"""Random programs, run in every way there is and compared."""
