"""NVRTC and nvdisasm: kernels with known registers, spills, memory and instructions, compiled without a GPU."""

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from common import ROOT
from common.compile import nvrtc, sass
from common.errors import CompileError, LabError
from experiments.timing import bandwidth
from experiments.timing.bandwidth import text

KERNELS = r"""
#line 1 "made/up.cu"
extern "C" __global__ void other(float* x) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(const float* x, float* y) {
    float v[64];
#pragma unroll
    for (int i = 0; i < 64; i++) v[i] = x[i * 1024 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 64; i++)
        y[i * 37 % 64 * 1024 + threadIdx.x] = v[i] * v[(i * 13 + 5) % 64] + v[(i * 29 + 3) % 64];
}
extern "C" __global__ void decode(const uint4* wide, const uint2* half, const float* narrow, float* y, unsigned* word) {
    __shared__ float s[1000];
    uint4 a = wide[threadIdx.x]; uint2 b = half[threadIdx.x]; float c = narrow[threadIdx.x];
    unsigned to = unsigned(__cvta_generic_to_shared(s + 16));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(wide + 999) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    float t = __shfl_xor_sync(~0u, float(a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y) + c, 1);
    s[threadIdx.x + 100] = t;
    __syncthreads();
    asm volatile("prefetch.global.L2 [%0];" ::"l"(y + 4096));
    __threadfence();
    atomicAdd(word, threadIdx.x == 0 ? 1u : 0u);
    __syncthreads();
    y[threadIdx.x] = fmaf(s[threadIdx.x], t, s[999 - threadIdx.x]);
}
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void bulk(float* x) {
    __shared__ alignas(16) float s[256];
    __shared__ unsigned long long barrier;
    unsigned to = unsigned(__cvta_generic_to_shared(s)), at = unsigned(__cvta_generic_to_shared(&barrier));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];"
                 ::"r"(to), "l"(x), "r"(at) : "memory");
    x[threadIdx.x + 512] = s[threadIdx.x];
}
#endif
"""


def test_a_home_that_cannot_be_written_is_named_with_what_helps(tmp_path):
    """CuPy makes its own cache there when it is imported."""
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, "-c", "from common.compile.nvrtc import version; version()"],
        env={name: value for name, value in os.environ.items() if name != "CUPY_CACHE_DIR"}
        | {"HOME": f"{tmp_path}/file"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stderr.splitlines()[-1].endswith(
        f"CuPy does not import: Not a directory, {tmp_path}/file/.cupy; choose another place with cache=DIR, "
        "results=FILE, TMPDIR or CUPY_CACHE_DIR"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '#line 3 "a.cu"\nvoid f() {\n#line 1 "entry"\nvoid g() {}',
            "a.cu(3): error: no brace closes this one; correct",
        ),
        (
            '#line 1 "entry"\nstruct Kernel : Nothing {};',
            "entry(1): error: not a class or struct name; write each variant",
        ),
        ('#line 29 "constants"\nint int = 2;', "combination of type specifiers; rename the variant, knob"),
        ('#line 6 "common/kernel/a.cuh"\nint x = f(1);', '"f" is undefined; give what a variant overrides there'),
        ('#line 6 "common/kernel/a.cuh"\nstatic_assert(0, "as it says");', '"as it says"; correct the source'),
    ],
)
def test_the_remedy_of_an_error_outside_the_authors_file_names_what_the_author_wrote(text, said):
    with pytest.raises(CompileError) as error:
        nvrtc.compile_cubin(text, "sm_90")
    assert said in str(error.value)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cubins")


@pytest.fixture(scope="module")
def cubins(cache: Path) -> dict[str, bytes]:
    return {arch: nvrtc.compile_cubin(KERNELS, arch, cache_dir=cache) for arch in nvrtc.ARCHS}


@pytest.fixture(scope="module")
def decode(cubins: dict[str, bytes], cache: Path) -> dict[str, sass.Resources]:
    return {arch: sass.resources(cubin, arch, cache_dir=cache) for arch, cubin in cubins.items()}


def test_every_arch_gives_an_elf_file_of_its_own(cubins):
    assert tuple(cubins) == nvrtc.ARCHS
    assert all(cubin.startswith(b"\x7fELF") for cubin in cubins.values())
    assert len(set(cubins.values())) == len(cubins)


def test_resources_that_follow_from_the_source(decode):
    for arch, r in decode.items():
        assert (r.arch, r.kernel) == (arch, "decode")
        assert 8 <= r.registers <= 64, arch
        assert (r.spill_bytes, r.stack, r.local) == (0, 0, 0), arch
        assert r.shared == 4000, arch  # 1000 floats, without the KiB that the system reserves from sm_90 on
        assert r.count("LDG", "128") == 1, arch
        assert r.count("LDG", "64") == 1, arch
        assert r.count("LDG") == 3, arch
        assert r.count("LDGSTS", "128") == 1, arch
        assert r.count("BAR", "SYNC") == 2, arch
        assert r.count("SHFL", "BFLY") == 1, arch
        assert r.count("MEMBAR", "GPU") == 1, arch
        assert r.count("CCTL", "PF2") == 1, arch
        assert r.count("ATOMG") + r.count("RED") + r.count("REDG") == 1, arch
        assert r.count("FFMA") == 1, arch
        assert r.count("LDL") + r.count("STL") == 0, arch


def test_kernels_of_one_cubin_are_distinguished(cubins, cache):
    for arch in ("sm_80", "sm_120"):
        other = sass.resources(cubins[arch], arch, "other", cache)
        assert other.shared == 256
        assert (other.count("LDG"), other.count("LDGSTS"), other.count("SHFL")) == (1, 0, 0)


def test_bulk_copies_are_found_on_archs_that_have_them(cubins, cache):
    bulk = sass.resources(cubins["sm_90"], "sm_90", "bulk", cache)
    assert bulk.count("UBLKCP") == 1
    assert bulk.shared == 1024 + 8
    with pytest.raises(LabError, match=r"no kernel bulk, but .*decode"):
        sass.resources(cubins["sm_80"], "sm_80", "bulk", cache)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_spills_are_those_that_ptxas_reports(arch, cubins, cache):
    from cupy_backends.cuda.libs import nvrtc as binding

    program = binding.createProgram(KERNELS, "decode.cu", (), ())
    binding.compileProgram(program, (*nvrtc.options(arch), "--ptxas-options=-v"))
    log = binding.getProgramLog(program)
    binding.destroyProgram(program)
    of_kernel = log[log.index("'spilling'") :]
    stack, stored, loaded = map(
        int,
        re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", of_kernel).groups(),
    )
    found = sass.resources(cubins[arch], arch, "spilling", cache)
    assert stored > 0
    assert found.spill_bytes == stored + loaded
    assert found.stack == stack
    assert found.registers == 32  # 65536 registers / (2 blocks x 1024 threads)


def test_instructions_are_found_at_their_lines(cubins, cache):
    lines, at = KERNELS.splitlines()[2:], defaultdict(list)  # after the #line
    for file, line, opcode in sass.instructions(sass.sass(cubins["sm_80"], cache_dir=cache)):
        assert file.endswith("made/up.cu")
        at[opcode.split(".")[0]].append(lines[line - 1])
    assert ["uint4 a = wide" in line for line in at["LDG"]] == 3 * [True]
    assert ["cp.async.cg" in line for line in at["LDGSTS"]] == [True]


def test_fma_contraction_is_controlled_by_the_source():
    text = 'extern "C" __global__ void decode(float* x) { x[0] = x[1] * x[2] + x[3]; }'
    plain = sass.resources(nvrtc.compile_cubin(text, "sm_90"), "sm_90")
    assert (plain.count("FFMA"), plain.count("FMUL"), plain.count("FADD")) == (0, 1, 1)


def test_cupy_compiles_the_same_code(monkeypatch):
    """CuPy from `compile_with_cache` on, which RawModule calls, with only the query of the GPU arch replaced."""
    from cupy._core import core
    from cupy.cuda import compiler

    made = []

    class CompiledError(Exception):
        pass

    class Program(compiler._NVRTCProgram):
        def compile(self, options: tuple[str, ...] = (), log_stream: object = None):
            made.extend([options, super().compile(options, log_stream)[0]])
            raise CompiledError

    class NoCache:
        def load(self, name: str) -> None:
            return None

    arch_option = compiler._get_arch_for_options_for_nvrtc.__wrapped__
    monkeypatch.setattr(compiler, "_NVRTCProgram", Program)
    monkeypatch.setattr(compiler, "_get_arch_for_options_for_nvrtc", arch_option)
    monkeypatch.setattr(compiler, "_preprocess", lambda *_: "")
    monkeypatch.setattr(compiler, "_kernel_cache_backend", NoCache())
    with pytest.raises(CompiledError):
        core.compile_with_cache(KERNELS, nvrtc.options(), "90", prepend_cupy_headers=False)
    chosen, cubin = made
    assert {option for option in chosen if not option.startswith("-I")} == set(nvrtc.options("sm_90"))
    ours = nvrtc.compile_cubin(KERNELS, "sm_90")
    for kernel in ("decode", "spilling"):
        assert sass.sass(cubin + b"\0", kernel) == sass.sass(ours, kernel)


def test_an_error_in_the_source_is_reported_with_its_line():
    broken = '#line 7 "variants/x.cu"\nextern "C" __global__ void decode() { int a = missing; }'
    with pytest.raises(CompileError, match=r'variants/x.cu\(7\): error: identifier "missing" is undefined') as caught:
        nvrtc.compile_cubin(broken, "sm_80")
    assert "^" in caught.value.report
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "arch", "said"),
    [('asm volatile("fool;");', "sm_80", "fool"), ("", "sm_20", r"sm_20.*invalid value for --gpu-architecture")],
)
def test_wrong_ptx_and_an_unknown_arch_are_refused(body, arch, said):
    with pytest.raises(CompileError, match=said):
        nvrtc.compile_cubin(f'extern "C" __global__ void decode() {{ {body} }}', arch)


def test_a_cubin_is_compiled_once(tmp_path, monkeypatch):
    text = 'extern "C" __global__ void decode(float* x) { x[0] = 3; }'
    first = nvrtc.compile_cubin(text, "sm_80", cache_dir=tmp_path)
    listing = sass.sass(first, cache_dir=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2  # no temporary files remain
    monkeypatch.setattr(nvrtc, "built", None)
    monkeypatch.setattr(sass, "_tool", None)
    assert nvrtc.compile_cubin(text, "sm_80", cache_dir=tmp_path) == first
    assert sass.sass(first, cache_dir=tmp_path) == listing


def test_a_cache_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(LabError, match=r"cache folder .* cannot be used"):
        nvrtc.compile_cubin('extern "C" __global__ void decode() {}', "sm_80", cache_dir=tmp_path / "file")


def test_missing_tools_say_what_to_install(cubins, monkeypatch, tmp_path):
    monkeypatch.setattr(sass, "find_spec", lambda name: None)
    monkeypatch.setattr(sass, "TOOLKIT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match="pip install nvidia-cuda-nvdisasm"):
        sass.sass(cubins["sm_80"])


def test_a_tool_on_the_path_is_used(cubins, monkeypatch, tmp_path):
    wheel = sass._find("nvdisasm")
    (tmp_path / "nvdisasm").symlink_to(wheel)
    monkeypatch.setattr(sass, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert sass._find("nvdisasm") == str(tmp_path / "nvdisasm")


def test_a_file_that_is_no_cubin_is_refused():
    with pytest.raises(LabError, match="nvdisasm refuses the cubin"):
        sass.sass(b"\x7fELF nonsense")


def test_without_cupy_the_error_has_a_remedy(monkeypatch):
    monkeypatch.setattr(nvrtc, "version", nvrtc.version.__wrapped__)  # as in a new process
    monkeypatch.setitem(__import__("sys").modules, "cupy_backends.cuda.libs", None)
    with pytest.raises(LabError, match="install the extra cuda13"):
        nvrtc.compile_cubin("", "sm_80")


def test_the_bandwidth_probes_read_128_bits_at_a_time_or_in_bulk():
    for arch in ("sm_80", "sm_90", "sm_120"):
        cubin = nvrtc.compile_cubin(text(bandwidth.KERNELS), arch)
        plain = sass.resources(cubin, arch, "read_all")
        assert plain.count("LDG", "128") == plain.count("LDG") >= 9, arch  # eight unrolled, and the rest
        assert plain.spill_bytes == 0, arch
        bulk = sass.resources(cubin, arch, "read_bulk")
        assert (bulk.count("UBLKCP") > 0) == (arch != "sm_80"), arch
        assert (bulk.count("LDG"), bulk.spill_bytes) == (0, 0), arch
