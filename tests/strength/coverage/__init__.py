"""Coverage of the CUDA text: what a validation executes of every line, branch and loop, and why it leaves the rest."""
