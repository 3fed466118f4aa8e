"""Evidence under a budget: the steps, what each is expected to take, and the processes that do them."""
