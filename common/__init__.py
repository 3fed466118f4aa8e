"""The parts every command is built from, a package for each step: compile, validate, measure, record.

Imports go one way, and a contract in pyproject.toml keeps them so: config > record > validate > devices > compile >
stacks > model > cache > errors.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]  # root of the checkout: sources, yaml and committed records lie below it
