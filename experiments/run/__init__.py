"""One run: the steps for one stack, the worker processes that execute them, and the sweep over many stacks."""
