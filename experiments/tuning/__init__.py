"""Search for the fastest stack: the space of candidates, and the search in it."""
