"""Command that shows and compares records."""
