"""Git in a folder that a test made, whatever the user's own settings are."""

import os
import subprocess
from pathlib import Path

WHO = {"GIT_AUTHOR_NAME": "n", "GIT_AUTHOR_EMAIL": "n@example.org"}
WHO |= {"GIT_COMMITTER_NAME": "n", "GIT_COMMITTER_EMAIL": "n@example.org"}
ENV = os.environ | WHO | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}  # which may sign commits


def git(folder: Path, *words: str) -> str:
    argv = ["git", "-C", folder, *words]
    return subprocess.run(argv, env=ENV, capture_output=True, text=True, check=True).stdout.strip()


def commit(folder: Path) -> str:
    """All that is in the folder; returns the commit's id."""
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "m")
    return git(folder, "rev-parse", "HEAD")
