"""Soak test: hundreds of kills, validations of correct kernels and hostile inputs."""
