"""Records: the store, the provenance of a record, and the conversion of values to JSON."""
