"""Command that shows, compares and exports records."""
