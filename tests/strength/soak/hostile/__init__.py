"""Hostile inputs: generated command lines, calls in Python, requests and environments."""
