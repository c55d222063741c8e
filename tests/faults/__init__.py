"""Does the limiter hold whatever Redis does? Faults made on purpose, and what requests meet."""
