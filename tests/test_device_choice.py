"""Choice of the device on machines with and without a driver, a GPU and CuPy."""

import ctypes
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from temporary_root import make_root

from common.config import device_choice
from common.config.cli import composed, run_task
from common.config.resolve import resolve, resolve_one
from common.config.run_config import PtxOptions
from common.devices.cuda import CudaDevice
from common.errors import LabError


class CudaError(Exception):
    pass


@pytest.fixture
def machine(monkeypatch):
    """Pretend to be a machine with a driver, and a CuPy that answers `count` or raises it."""

    def set_up(count, driver=13000, nvrtc=(13, 0)):
        def get_count():
            if isinstance(count, Exception):
                raise count
            return count

        runtime = SimpleNamespace(
            getDeviceCount=get_count,
            getDeviceProperties=lambda _: {"name": b"Some GPU"},
            driverGetVersion=lambda: driver,
            CUDARuntimeError=CudaError,
        )
        cuda = SimpleNamespace(runtime=runtime, Device=lambda ordinal: SimpleNamespace(use=lambda: None))
        monkeypatch.setattr("common.compile.nvrtc._nvrtc", lambda: SimpleNamespace(getVersion=lambda: nvrtc))
        monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
        monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
        monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)

    return set_up


def test_auto_takes_a_working_gpu(machine, tmp_path):
    machine(1)
    assert device_choice.choose_device("auto") == device_choice.DeviceChoice("cuda", "Some GPU")
    root, found = make_root(tmp_path), []

    def task(cfg):
        found.append(resolve(cfg, root))
        return 0

    assert run_task(task, "config", ["device=auto"], root) == 0
    assert (found[0].device.name, found[0].model.name, found[0].ptx) == ("cuda", "qwen3_0_6b", None)


@pytest.mark.parametrize(
    ("driver", "nvrtc", "message"),
    [
        (12040, (13, 0), r"NVRTC 13.0 compiles for CUDA 13, and the driver is of CUDA 12.4: .*; update the driver, or"),
        (12040, (12, 9), None),
        (13000, (12, 9), None),
        (13000, (13, 4), None),
    ],
)
def test_a_compiler_that_is_too_new_for_the_driver_is_named_before_it_compiles(machine, driver, nvrtc, message):
    machine(1, driver, nvrtc)
    with nullcontext() if message is None else pytest.raises(LabError, match=message):
        CudaDevice()


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (0, "no GPU"),
        (CudaError("cudaErrorInsufficientDriver: too old"), "the GPU cannot be used: cudaErrorInsufficientDriver"),
    ],
)
def test_without_a_gpu_auto_takes_ptx_and_cuda_gives_the_reason(machine, count, message):
    machine(count)
    choice = device_choice.choose_device("auto")
    assert choice.name == "ptx"
    assert message in choice.why
    with pytest.raises(LabError, match="device=ptx"):
        device_choice.choose_device("cuda")


def test_without_a_gpu_generation_decodes_on_the_ptx_device(machine):
    machine(0)
    config = resolve_one(composed("lab", ["timing=none", "device.timeout_s=7"]), "a generation")
    assert (config.device.name, config.ptx) == ("ptx", PtxOptions("sm_90", False, 7.0))
    assert "the driver reports no GPU" in str(config.device)
    assert resolve(composed("lab", [])).device.name == "ptx"


@pytest.mark.parametrize("given", ["device.races=true", "device.arch=sm_75"])
def test_a_gpu_is_asked_for_nothing_that_only_the_ptx_device_does(machine, given):
    machine(1)
    with pytest.raises(LabError, match=rf"^{given.partition('=')[0]}= has no effect on a GPU; .* device=ptx"):
        resolve(composed("config", [given]))


def test_without_a_driver_cupy_is_not_imported(monkeypatch):
    def missing(name):
        raise OSError

    monkeypatch.setattr(ctypes, "CDLL", missing)
    monkeypatch.setitem(sys.modules, "cupy", None)  # importing it would raise
    assert "no NVIDIA driver" in device_choice.choose_device("auto").why


def test_without_cupy_the_remedy_names_the_extra(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setitem(sys.modules, "cupy.cuda", None)
    with pytest.raises(LabError, match=r"CuPy does not import.*cuda13"):
        device_choice.choose_device("cuda")


def test_a_home_that_cupy_cannot_write_to_is_named(monkeypatch):
    class Cuda:
        @property
        def runtime(self):
            raise NotADirectoryError(20, "Not a directory", "/dev/null/.cupy")

    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    monkeypatch.setitem(sys.modules, "cupy.cuda", Cuda())
    with pytest.raises(LabError, match=r"CuPy does not import: Not a directory, /dev/null/.cupy; .*CUPY_CACHE_DIR"):
        device_choice.choose_device("cuda")
