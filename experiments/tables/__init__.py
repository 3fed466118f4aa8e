"""Vocabulary of what commands print: rows, tables, verdicts, progress, closing lines."""
