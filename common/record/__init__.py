"""Records: their types, the store, and their provenance."""
