"""Processes that the lab starts: modules that answer in lines of JSON, steps, and calls; each ends with its parent."""
