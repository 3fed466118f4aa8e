"""Installation from the checkout: pip refuses a wheel in one line, and an editable installation runs in any folder."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from common import ROOT

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
LOCAL = ("--no-index", "--no-deps", "--no-build-isolation")  # no network: this environment has setuptools
FOLDERS = (".ci", "common", "conf", "experiments", "profiles", "variants")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy, for what a build leaves behind."""
    target = tmp_path / "checkout"
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, target / folder, ignore=shutil.ignore_patterns("__pycache__", "runs", "results"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, target)
    return target


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """The interpreter of a fresh environment that sees this one's libraries, and nothing of this checkout."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    purelib = subprocess.check_output(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    )
    libraries = next(path for path in sys.path if Path(path, "hydra").is_dir())
    Path(purelib.strip(), "libraries.pth").write_text(libraries)
    return python


def refused(done: subprocess.CompletedProcess[str]) -> bool:
    """One line with the cause and the remedy, and no traceback, among what pip says itself."""
    said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if "runs from its checkout" in line]
    assert "Traceback" not in done.stderr + done.stdout
    return done.returncode != 0 and len(said) == 1 and "pip install -e" in said[0]


@pytest.mark.parametrize("words", [("wheel", "."), ("install", "--target", "installed", ".")])
def test_pip_refuses_a_wheel_in_one_line(checkout, words):
    done = subprocess.run([*PIP, words[0], *LOCAL, *words[1:]], cwd=checkout, capture_output=True, text=True)
    assert refused(done), done.stdout + done.stderr
    assert not list(checkout.rglob("*.whl"))
    assert not (checkout / "installed").exists()


@pytest.mark.parametrize("hook", ["build_sdist", "get_requires_for_build_sdist", "get_requires_for_build_wheel"])
def test_every_other_way_to_a_built_package_is_refused_too(hook):
    code = f"import sys; sys.path.insert(0, '.ci'); import editable_only; editable_only.{hook}('.')"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert refused(done), done.stderr


def test_an_editable_installation_runs_from_any_folder(checkout, venv, tmp_path):
    pip = [*PIP, "--python", str(venv), "install", *LOCAL, "-e", str(checkout)]
    done = subprocess.run(pip, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    code = "from experiments import Lab; print(Lab(model='tiny', device='ptx', seed=7).config.results)"
    done = subprocess.run([venv, "-c", code], cwd=elsewhere, env={}, capture_output=True, text=True)
    assert done.stdout.strip() == str(checkout / "experiments" / "runs" / "records.jsonl"), done.stderr
