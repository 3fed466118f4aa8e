"""Variants, their knobs, and the stacks they are composed into."""
