"""The place of the cache: the user's folder, or one of its own where there is no home."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

from permissions import without_root_rights

from common import ROOT
from common.cache import folder

UNKNOWN_USER = """
import os, pwd, sys
def getpwuid(uid):
    raise KeyError(f"getpwuid(): uid not found: {uid}")
pwd.getpwuid = getpwuid
"""


def test_without_a_home_and_a_name_a_command_works(tmp_path):
    """As in a container that runs as a user of a number. CuPy and others must not make a folder named ~, either."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(UNKNOWN_USER)
    environment = {key: value for key, value in os.environ.items() if key not in ("HOME", "XDG_CACHE_HOME")}
    environment |= {"TMPDIR": str(tmp_path), "PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{ROOT}"}
    argv = [sys.executable, "-m", "experiments.cache"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True)
    home = tmp_path / f"megakernel-lab-{os.getuid()}"
    assert (done.returncode, done.stdout) == (0, f"{home}/.cache/megakernel-lab: 0.000 of 10 GB\n"), done.stderr
    assert done.stderr == f"note: there is no home folder; for this command it is {home}\n"
    assert home.stat().st_mode & 0o777 == 0o700
    home.chmod(0o777)  # another user may have laid libraries there
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "only this user can write" in done.stderr


def test_the_place_is_the_users_cache_folder(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert folder.place() == tmp_path / "xdg" / "megakernel-lab"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder.place() == tmp_path / ".cache" / "megakernel-lab"
    assert not caplog.records


def test_a_home_that_cannot_be_written_is_left_alone_and_said(monkeypatch, tmp_path, caplog):
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with without_root_rights():
        assert folder.place() == tmp_path / f"megakernel-lab-{os.getuid()}"
    (record,) = caplog.records
    assert record.getMessage().startswith(f"note: {home}/.cache/megakernel-lab cannot be written")


def test_a_known_home_stays(monkeypatch):
    monkeypatch.delenv("HOME")
    folder.ensure_home()
    assert "HOME" not in os.environ
    assert Path.home() == Path(pwd.getpwuid(os.getuid()).pw_dir)
