"""Mutation test of the validator: deliberate faults in the kernels, and how many of them the validator finds."""
