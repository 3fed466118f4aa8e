"""Configuration: from the command line to a frozen RunConfig, or a LabError that names the wrong key."""
