"""What does it cost? Measurements; never run by the tests."""
