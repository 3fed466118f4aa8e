"""Files kept under a name that holds a hash of their content: compiled kernels and packed weights."""
