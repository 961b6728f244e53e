"""One admission review: decided, answered, and its decision cached."""
