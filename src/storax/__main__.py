"""``python -m storax``."""

from storax.cli import main

if __name__ == "__main__":
    main()
