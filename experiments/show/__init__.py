"""What a command prints: progress, rows, tables."""
