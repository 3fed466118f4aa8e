"""Files named by a hash of what they are made from: weights, kernels, listings, references."""
