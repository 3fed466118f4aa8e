"""How a result shows itself, in a terminal and in a notebook."""
