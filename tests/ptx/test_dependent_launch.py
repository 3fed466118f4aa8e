"""Kernels that are launched before the one in front has ended: they pass, they wait first, and the call is CUDA's."""

import ctypes
import re
import subprocess
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from composed import Composed

from common.devices.dependent import SERIALIZATION, Attribute, Config
from common.devices.ptx.device import PtxDevice
from common.errors import CompileError, Refused
from common.model.weights import load
from common.validate.check import validate
from common.validate.scenarios import Start, drawn

SOURCE = Composed(("graph",), {"how": "pdl"}).source
WAIT = "await_previous();\n    launch_next();"
COPY = 'asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(0), "l"(b.state));'
LDU = 'asm volatile("{ .reg .u32 x; ldu.global.u32 x, [%0]; }" ::"l"(b.state));'


def test_they_pass_and_an_older_gpu_is_refused(tiny, cpu_cache, seed):
    source, weights = SOURCE(tiny), load("synthetic", tiny, None, cpu_cache, seed)[2].flat
    device = PtxDevice(cpu_cache / "kernels", seed=seed)
    some = drawn([Start(5, 2)], source.layout, weights, torch.Generator().manual_seed(seed))
    with closing(device.session(device.compile(source), weights, 3)) as session:
        verdict = validate(session, weights, some, seed)
    assert verdict.passed, f"{verdict}, seed {seed}"
    with pytest.raises(Refused, match=r"graph needs sm_90 and the target is sm_80.*; leave out how=pdl, or"):
        PtxDevice(cpu_cache / "kernels", arch=80).compile(source)


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ("launch_next();", r"stage_embed: ld\S* before griddepcontrol\.wait; wait first"),
        ("if (b.state[0] == 0) await_previous();", r"stage_embed: ld\S* before griddepcontrol\.wait"),
        ("if (threadIdx.x < 32) await_previous();", r"stage_embed: bra\S* before griddepcontrol\.wait"),
        ("if (blockIdx.x > 0) return; await_previous();", r"stage_\w+: \S+ before griddepcontrol\.wait"),
        (f"{COPY} await_previous();", r"stage_embed: cp\.async\S* before griddepcontrol\.wait"),
        (f"{LDU} await_previous();", r"the executor does not know ldu\.global\.u32"),
    ],
)
def test_a_kernel_that_does_not_wait_first_is_no_kernel(wrong, found, tiny, cpu_cache):
    source = SOURCE(tiny)
    assert source.text.count(WAIT) == 1
    changed = replace(source, text=source.text.replace(WAIT, wrong))
    with pytest.raises(CompileError, match=found):
        PtxDevice(cpu_cache / "kernels").compile(changed)


def test_the_structs_are_those_of_cudas_header(tmp_path):
    home = find_spec("nvidia")
    headers = [path for root in home.submodule_search_locations for path in Path(root).glob("*/include/cuda.h")]
    if not headers:
        pytest.skip("the CUDA headers of the extra cuda13 are not installed")
    names = ["gridDimX", "blockDimX", "sharedMemBytes", "hStream", "attrs", "numAttrs"]
    places = ", ".join(f"offsetof(CUlaunchConfig, {name})" for name in names)
    value = "value.programmaticStreamSerializationAllowed"
    numbers = f"sizeof(CUlaunchConfig), {places}, sizeof(CUlaunchAttribute), offsetof(CUlaunchAttribute, {value})"
    kind = "size_t(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)"
    program = tmp_path / "offsets.cpp"
    program.write_text(
        "#include <cstddef>\n#include <cstdio>\n#include <cuda.h>\n#include <initializer_list>\n"
        f'int main() {{ for (size_t one : {{{numbers}, {kind}}}) std::printf("%zu ", one); }}\n'
    )
    built = tmp_path / "offsets"
    subprocess.run(["g++", "-std=c++17", f"-I{headers[0].parent}", str(program), "-o", str(built)], check=True)
    want = [int(one) for one in re.findall(r"\d+", subprocess.run([str(built)], capture_output=True, text=True).stdout)]
    own = [
        getattr(Config, name).offset for name in ("grid", "block", "shared", "stream", "attributes", "attribute_count")
    ]
    sizes = [ctypes.sizeof(Attribute), Attribute.programmatic.offset, SERIALIZATION]
    assert [ctypes.sizeof(Config), *own, *sizes] == want
