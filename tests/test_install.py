"""Installation: constraints that the public index alone satisfies, the wheels for a machine without a network, and what
`make` refuses before it makes anything."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
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


CPU_BUILD = "torch-2.13.0+cpu"  # the one in constraints.txt: named as on PyTorch's index, which is not used
CPU_NEEDS = ("filelock", "fsspec", "jinja2", "networkx", "setuptools", "sympy", "typing-extensions")


@pytest.fixture(scope="module")
def cpu_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with torch's CPU build, as far as a resolution looks at it."""
    folder, about = tmp_path_factory.mktemp("torch"), f"{CPU_BUILD}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in CPU_NEEDS)
    with zipfile.ZipFile(folder / f"{CPU_BUILD}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0+cpu\n{needs}")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    return folder


def target(python: str, cuda: str, machine: str) -> Sequence[str]:
    """Arguments for what `make` installs on such a machine: wheels, and antlr4, which is published as source only."""
    extras = [f"--extra={extra}" for extra in (cuda, "hf", "serve", "tune", "dev")]
    wheels = ["--only-binary=:all:", "--no-binary=antlr4-python3-runtime"]
    return *extras, *wheels, f"--python-version={python}", f"--python-platform={machine}-manylinux_2_28"


@pytest.mark.parametrize(("python", "cuda", "machine"), sampled(product(PYTHONS, CUDAS, MACHINES), 4))
def test_constraints_resolve_and_pin_everything(
    resolve: Resolve, cpu_build: Path, python: str, cuda: str, machine: str
):
    """CuPy finds one NVRTC, of its own CUDA: with CUDA 12 torch is the CPU build."""
    constraints = ROOT / "constraints.txt"
    torch = [f"--find-links={cpu_build}"] if cuda == "cuda12" else []
    found = resolve(ROOT / "pyproject.toml", "--constraints", str(constraints), *target(python, cuda, machine), *torch)
    assert not found.returncode, found.stderr
    pins = {line.split(" ")[0] for line in constraints.read_text().splitlines()}
    installed = {line.replace("+cpu", "") for line in found.stdout.splitlines() if line}
    assert any(line.startswith("torch==") for line in installed)
    assert not installed - pins, "not pinned: run `make lock`"
    compilers = {line.partition("==")[0] for line in installed if line.startswith("nvidia-cuda-nvrtc")}
    assert compilers == {{"cuda13": "nvidia-cuda-nvrtc", "cuda12": "nvidia-cuda-nvrtc-cu12"}[cuda]}


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
    """Each is in the list for pip or already on such a machine, and the page tells the command."""
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
    assert {"pytest-timeout", "pytest-xdist"} <= set(names), "options of pytest in pyproject.toml"
    assert "make evidence OFFLINE=1" in (ROOT / "docs" / "run-on-gpus.md").read_text()


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


@pytest.mark.parametrize("choice", ["CUDA=11", "TORCH=rocm", "CUDA=12 TORCH=cuda"])
def test_a_choice_that_does_not_exist_is_refused(checkout: Path, choice: str):
    assert choice in refused(checkout, f"PYTHON={sys.executable}", *choice.split())


def test_a_key_of_the_lab_beside_args_is_refused(checkout: Path):
    message = refused(checkout, "variant=vec128", "model=tiny")
    assert 'give keys of the lab in ARGS: ARGS="model=tiny variant=vec128"' in message


@pytest.mark.parametrize("known", ["", "CUDA ?= 13\nTORCH ?= cuda\n", "CUDA ?= 12\nTORCH ?= cpu\n"])
def test_cuda_12_has_torch_for_the_cpu(checkout: Path, known: str):
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "choices").write_text(known)
    plan = subprocess.run(
        [shutil.which("make"), "run", "-n", "CUDA=12", f"PYTHON={sys.executable}"],
        cwd=checkout, capture_output=True, text=True, timeout=HANGS_S, check=True,
    )  # fmt: skip
    assert "touch .venv/made-for-cuda12-torch-cpu\n" in plan.stdout


def test_offline_takes_the_machine_s_python_and_the_wheels_that_were_copied(checkout: Path, tmp_path_factory):
    """The wheels are installed once; no .venv is made."""
    message = refused(checkout, "OFFLINE=1")
    assert re.match(r"error: no wheelhouse/requirements\.txt; run make wheelhouse where there is a network", message)

    (checkout / "wheelhouse").mkdir()
    (checkout / "wheelhouse" / "requirements.txt").touch()
    folder = tmp_path_factory.mktemp("bin")
    (folder / "python3").write_text(f'#!/bin/sh\n[ "$1" = -c ] || echo "$@" >>{folder}/called\n')
    (folder / "python3").chmod(0o755)
    given = ("OFFLINE=1", "BUDGET=540", "RESULTS=r.jsonl", f"PYTHON={sys.executable}")
    for _ in range(2):
        subprocess.run(
            [shutil.which("make"), "evidence", *given],
            cwd=checkout, env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}, check=True, timeout=HANGS_S,
        )  # fmt: skip
    install, *calls = (folder / "called").read_text().splitlines()
    assert "-m pip install" in install
    assert install.endswith("--no-index --find-links wheelhouse -r wheelhouse/requirements.txt")
    assert calls == ["-m experiments.evidence results=r.jsonl budget_s=540"] * 2
    assert not (checkout / ".venv").exists()
