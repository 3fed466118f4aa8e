"""Display of results, in a terminal and in a notebook."""
