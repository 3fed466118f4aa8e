"""Evidence under a budget: the steps, their expected times, and the processes that run them."""
