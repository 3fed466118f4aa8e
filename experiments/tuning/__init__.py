"""Search for the fastest stack: the space of candidates, the strategies that choose from it, and the search itself."""
