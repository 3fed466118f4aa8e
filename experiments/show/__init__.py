"""Command that shows records."""
