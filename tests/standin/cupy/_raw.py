"""Kernels from CUDA text."""

from typing import Any

from cupy._arrays import MemoryPointer
from cupy.cuda import driver
from cupy.cuda.compiler import CompileException
from cupy.cuda.function import Function
from standin_gpu.compiling import CompilationFailed, compile_text
from standin_gpu.cython import typed
from standin_gpu.launching import Kernel
from standin_gpu.machine import MACHINE
from standin_gpu.memory import Owner


class RawModule:
    """A text with kernels, compiled at the first request for one."""

    @typed
    def __init__(
        self,
        code: str = None,  # noqa: RUF013  as CuPy declares it
        *,
        path: str = None,  # noqa: RUF013
        options: tuple = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        name_expressions: Any = None,
        jitify: Any = None,
    ) -> None:
        if (code is None) == (path is None):
            raise TypeError("Exactly one of `code` and `path` keyword arguments must be given.")
        if path is not None or backend != "nvrtc" or name_expressions is not None or jitify:
            raise NotImplementedError("the stand-in compiles `code` by NVRTC, as the lab does")
        self.code, self.options, self.enable_cooperative_groups = code, options, enable_cooperative_groups
        self._kernels: dict[str, Kernel] | None = None
        self._variables: dict[str, Owner] = {}

    @typed
    def compile(self, log_stream: Any = None) -> None:
        self._kernels = None
        self._loaded()

    @typed
    def get_function(self, name: str) -> "RawKernel":
        kernel = RawKernel(self.code, name, self.options, enable_cooperative_groups=self.enable_cooperative_groups)
        kernel._module = self
        kernel.kernel  # noqa: B018  a name that is not in the module is an error here
        return kernel

    @typed
    def get_global(self, name: str) -> MemoryPointer:
        self._loaded()
        owner = self._variables[name]
        return MemoryPointer._at(owner, owner.buffer.bytes.ctypes.data)

    def _loaded(self) -> dict[str, Kernel]:
        MACHINE.call()
        if self._kernels is None:
            try:
                found = compile_text(self.code, self.options)
            except CompilationFailed as error:
                raise CompileException(str(error), self.code, "decode.cu", self.options) from None
            self._variables = {name: MACHINE.load(len(value)) for name, value in found.variables.items()}
            for name, value in found.variables.items():
                self._variables[name].buffer.bytes[:] = list(value)
            self._kernels = {name: Kernel(name, self.code, found.ptx, needs) for name, needs in found.kernels.items()}
        return self._kernels


class RawKernel:
    """One kernel."""

    @typed
    def __init__(
        self,
        code: str,
        name: str,
        options: tuple = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        *,
        enable_cooperative_groups: bool = False,
        jitify: Any = None,
    ) -> None:
        self.code, self.name, self.options = code, name, options
        self.enable_cooperative_groups = enable_cooperative_groups
        self._module: RawModule | None = None
        self._function: Function | None = None

    def __call__(self, grid: Any, block: Any, args: Any, **kwargs: Any) -> None:
        self.kernel(grid, block, args, enable_cooperative_groups=self.enable_cooperative_groups, **kwargs)

    @property
    def kernel(self) -> Function:
        if self._function is None:
            self._module = self._module or RawModule(code=self.code, options=self.options)
            self._function = Function(self._module._loaded(), self.name)
        return self._function

    @property
    def num_regs(self) -> int:
        return self._attribute(driver.CU_FUNC_ATTRIBUTE_NUM_REGS)

    @property
    def shared_size_bytes(self) -> int:
        return self._attribute(driver.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        return self._attribute(driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, size: int) -> None:
        driver.funcSetAttribute(self.kernel.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, size)

    def _attribute(self, attribute: int) -> int:
        return driver.funcGetAttribute(attribute, self.kernel.ptr)
