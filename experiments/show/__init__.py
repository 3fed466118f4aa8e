"""Output of commands: progress, rows, tables."""
