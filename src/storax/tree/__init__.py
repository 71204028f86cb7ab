"""What a checkpoint holds: names, leaves, documents, and how a saved tree fits a target. Pure values."""
