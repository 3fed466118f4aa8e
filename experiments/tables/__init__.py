"""Vocabulary of commands' output: rows, tables, verdicts, progress, closing lines."""
