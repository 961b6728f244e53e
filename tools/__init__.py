"""What builds the programs that tests, measurements and releases run."""
