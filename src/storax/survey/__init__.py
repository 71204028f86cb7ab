"""What there is to see of checkpoints and runs, for people: nothing here needs JAX, and nothing prints."""
