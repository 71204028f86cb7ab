"""For tests of code that uses storax."""
