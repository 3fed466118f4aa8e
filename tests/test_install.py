"""Installation: constraints that the public index alone satisfies, the wheels for a machine without a network, and what
`make` refuses before it makes anything."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from processes import HANGS_S
from sampled import sampled

from common import ROOT

PYTHONS, CUDAS, MACHINES = ("3.11", "3.12", "3.13"), ("cuda13", "cuda12"), ("x86_64", "aarch64")
Resolve = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def resolve(tmp_path_factory: pytest.TempPathFactory) -> Resolve:
    """resolve(requirements, *arguments): resolution by uv from the public index, without the machine's settings."""
    uv = pytest.importorskip("uv", reason="uv is not installed; it comes with the dev extra").find_uv_bin()
    folder = tmp_path_factory.mktemp("resolve")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    environment |= {"UV_CACHE_DIR": str(folder / "cache"), "UV_HTTP_RETRIES": "1"}

    def run(requirements: str | Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [uv, "pip", "compile", "--no-config", "--quiet", "--no-header", "--no-annotate"]
        return subprocess.run(
            [*command, "--python", sys.executable, *arguments, str(requirements)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=HANGS_S,
        )

    (folder / "probe.in").write_text("iniconfig\n")
    if (probe := run("probe.in")).returncode:
        pytest.skip(f"the public package index does not answer: {probe.stderr.strip().splitlines()[-1].strip()}")
    return run


def target(python: str, cuda: str, machine: str) -> Sequence[str]:
    """Arguments for what `make` installs on such a machine: wheels, and antlr4, which is published as source only."""
    extras = [f"--extra={extra}" for extra in (cuda, "hf", "serve", "tune", "dev")]
    wheels = ["--only-binary=:all:", "--no-binary=antlr4-python3-runtime"]
    return *extras, *wheels, f"--python-version={python}", f"--python-platform={machine}-manylinux_2_28"


@pytest.mark.parametrize(("python", "cuda", "machine"), sampled(product(PYTHONS, CUDAS, MACHINES), 4))
def test_constraints_resolve_and_pin_everything(resolve: Resolve, python: str, cuda: str, machine: str):
    constraints = ROOT / "constraints.txt"
    found = resolve(ROOT / "pyproject.toml", "--constraints", str(constraints), *target(python, cuda, machine))
    assert not found.returncode, found.stderr
    pins = {line.split(" ")[0] for line in constraints.read_text().splitlines()}
    installed = set(found.stdout.split("\n")) - {""}
    assert any(line.startswith("torch==") for line in installed)
    assert not installed - pins, "not pinned: run `make lock`"


def test_a_pin_against_those_of_torch_is_found(resolve: Resolve, tmp_path: Path):
    """torch's CUDA build wants nvidia-nvtx of CUDA 13.0. A CPU build on this machine would hide that."""
    wrong = re.sub(r"(?m)^nvidia-nvtx==.*", "nvidia-nvtx==13.5.25", (ROOT / "constraints.txt").read_text())
    (tmp_path / "wrong.txt").write_text(wrong)
    found = resolve(
        ROOT / "pyproject.toml", "--constraints", str(tmp_path / "wrong.txt"), *target("3.11", "cuda13", "x86_64")
    )
    assert found.returncode
    assert "nvidia-nvtx" in found.stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder in which nothing was made yet."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def test_a_gpu_machine_without_a_network_is_given_every_dependency_that_it_lacks(checkout: Path):
    """Each is in the list for pip or among those that such a machine has, and the page tells to install that list."""
    file = "wheelhouse/requirements.txt"
    subprocess.run(
        [shutil.which("make"), file, "STAMP=", f"PY={sys.executable}"], cwd=checkout, check=True, timeout=HANGS_S
    )
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    present = re.search(r"(?m)^PRESENT = (.*)", (ROOT / "Makefile").read_text())[1].split()
    needed = (checkout / file).read_text().splitlines()
    assert set(needed) <= set(dependencies)
    names = [Requirement(each).name for each in needed]
    assert sorted([*names, *present]) == sorted(Requirement(each).name for each in dependencies)
    assert {"hydra-core", "nvtx", "platformdirs", "xxhash"} <= set(names)
    page = (ROOT / "docs" / "run-on-gpus.md").read_text()
    assert f"pip install --no-index --find-links wheelhouse -r {file} && python -m experiments\n" in page


def refused(checkout: Path, *arguments: str, path: str = os.environ["PATH"]) -> str:
    """The one line with which `make run` stops, having made nothing."""
    before = set(checkout.iterdir())
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    done = subprocess.run(
        [shutil.which("make"), "run", *arguments],
        cwd=checkout, env=environment | {"PATH": path}, capture_output=True, text=True, timeout=HANGS_S,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert set(checkout.iterdir()) == before
    message = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("make")]
    assert len(message) == 1, message
    return message[0]


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 14, 0)])
def test_unsuitable_python_is_refused_before_anything_is_made(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, version: tuple[int, int, int]
):
    python = tmp_path_factory.mktemp("bin") / "python"
    pretend = f"import sys; sys.version_info = {(*version, 'final', 0)}; exec(sys.argv[2])"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{pretend}" "$@"\n')
    python.chmod(0o755)
    assert re.match(
        rf"error: {python} is not Python 3\.11 to 3\.13.*; install one", refused(checkout, f"PYTHON={python}")
    )


def test_a_python_that_does_not_exist_is_refused(checkout: Path):
    assert refused(checkout, "PYTHON=/no/such/python").startswith("error: /no/such/python is not Python 3.11 to 3.13")


def test_missing_compiler_is_said_at_once_where_kernels_can_only_run_on_the_cpu(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
):
    without = tmp_path_factory.mktemp("empty")
    message = refused(checkout, f"PYTHON={sys.executable}", "TORCH=cpu", path=str(without))
    assert re.match(r"error: no g\+\+.*; install it", message)


@pytest.mark.parametrize("choice", ["CUDA=11", "TORCH=rocm"])
def test_a_choice_that_does_not_exist_is_refused(checkout: Path, choice: str):
    assert choice in refused(checkout, f"PYTHON={sys.executable}", choice)
