"""The stand-in's rules, each broken once: order of streams, arguments, limits, memory, errors that stay."""

import warnings

import numpy as np
import pytest

READ = """
extern "C" __global__ void read_all(const uint4 *data, size_t count, unsigned passes, unsigned *result) {
  if (threadIdx.x == 0) atomicXor(result, data[count - 1].x + passes);
}
"""
BIG = 'extern "C" __global__ void empty() { extern __shared__ unsigned words[]; words[threadIdx.x] = 1; }'


@pytest.fixture
def read(cupy):
    """read(*arguments): one launch of the probe on the current stream."""
    kernel = cupy.RawModule(code=READ).get_function("read_all")
    return lambda *arguments: kernel((1,), (32,), arguments)


def words(cupy, count: int = 1024):
    return cupy.asarray(np.arange(1, count + 1, dtype=np.uint32), blocking=True)


def test_a_copy_that_nobody_waited_for_is_named_with_both_lines(cupy, read, misuse):
    data, result = cupy.asarray(np.zeros(1024, np.uint32)), cupy.zeros(1, cupy.uint32)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        with pytest.raises(
            misuse, match=r"test_standin_gpu.py:\d+: read_all reads .* copy to the GPU by asarray of .*"
        ):
            read(data, np.uint64(256), np.uint32(1), result)
        cupy.cuda.Stream.null.synchronize()
        read(data, np.uint64(256), np.uint32(1), result)
        assert int(result.get(stream=stream)[0]) == 0


def test_a_result_that_is_still_written_is_not_read(cupy, read, misuse):
    data, result = words(cupy), cupy.zeros(1, cupy.uint32)
    cupy.cuda.Stream.null.synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        read(data, np.uint64(256), np.uint32(1), result)
    with pytest.raises(misuse, match="copy to the host reads a buffer that read_all of"):
        result.get()
    stream.synchronize()
    assert result.get()[0] == 1024  # the xor of 1..1024


def test_blocking_streams_are_ordered_with_the_null_stream(cupy, read):
    data, result = cupy.asarray(np.zeros(1024, np.uint32)), cupy.zeros(1, cupy.uint32)
    with cupy.cuda.Stream():
        read(data, np.uint64(256), np.uint32(1), result)
    assert int(result[0]) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({1: 256}, "size_t count needs a numpy scalar uint64, not int"),
        ({1: np.uint32(256)}, "size_t count needs a numpy scalar uint64, not uint32"),
        ({2: np.int32(1)}, "unsigned passes needs a numpy scalar uint32, not int32"),
        ({0: np.uint64(4096)}, "the address 0x1000 is in no living buffer"),
        ({0: np.zeros(4, np.uint32)}, r"needs an array of the GPU or a numpy.uint64, not ndarray"),
        ({0: "float"}, "is given an array of float32"),
        ({0: "shifted"}, "is given an address that is not aligned"),
        ({3: None}, "takes 4 arguments, not 3"),
    ],
    ids=str,
)
def test_arguments_that_a_gpu_would_misread_are_refused(cupy, read, misuse, change, message):
    arguments = [words(cupy), np.uint64(256), np.uint32(1), cupy.zeros(1, cupy.uint32)]
    ((at, value),) = change.items()
    known = {"float": cupy.zeros(8, cupy.float32), "shifted": words(cupy)[1:]}
    arguments[at : at + 1] = [] if value is None else [known[value] if isinstance(value, str) else value]
    with pytest.raises(misuse, match=message):
        read(*arguments)


def test_an_access_beside_a_buffer_is_found_by_the_next_wait(cupy):
    put = cupy.RawKernel(
        'extern "C" __global__ void put(int *words, double value, int at) { words[at] = value; }', "put"
    )
    words, other = cupy.zeros(4, cupy.int32), cupy.zeros(4, cupy.int32)
    put((1,), (1,), (words, np.float64(7), np.int32(3)))
    assert words.get().tolist() == [0, 0, 0, 7]
    put((1,), (1,), (words, np.float64(7), np.int32((other._array.ctypes.data - words._array.ctypes.data) // 4)))
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="cudaErrorIllegalAddress"):
        cupy.cuda.Stream.null.synchronize()


def test_blocks_run_in_another_order_at_each_launch(cupy):
    code = 'extern "C" __global__ void order(int *first, int *at) { at[blockIdx.x] = atomicAdd(first, 1); }'
    order, found = cupy.RawKernel(code, "order"), []
    for _ in range(3):
        first, at = cupy.zeros(1, cupy.int32), cupy.zeros(8, cupy.int32)
        order((8,), (1,), (first, at))
        found.append(tuple(at.get()))
    assert {tuple(sorted(each)) for each in found} == {tuple(range(8))}
    assert len(set(found)) > 1


def test_memory_that_nobody_has_written_is_no_zero(cupy):
    cupy.zeros(9, cupy.uint8)
    assert set(cupy.empty(9, cupy.uint8).get()) == {255}


def test_no_more_memory_than_the_gpu_has_and_what_is_freed_stays_with_the_pool(cupy):
    free, total = cupy.cuda.Device().mem_info
    held = cupy.empty(free // 2, cupy.uint8)
    with pytest.raises(MemoryError, match="Out of memory allocating"):
        cupy.empty(free // 2 + 1, cupy.uint8)
    del held
    assert cupy.cuda.Device().mem_info[0] == free - free // 2
    assert cupy.empty(free, cupy.uint8).nbytes == free <= total


def test_memory_that_is_freed_while_another_stream_uses_it_has_been_given_away(cupy, read, misuse):
    data, result = words(cupy), cupy.zeros(1, cupy.uint32)
    cupy.cuda.Stream.null.synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        read(data, np.uint64(256), np.uint32(1), result)
        del data
        cupy.zeros(1024, cupy.uint32)  # this stream's own memory
    freed = r"memory that was freed at .*test_standin_gpu.py:\d+ while read_all of .*test_standin_gpu.py:\d+ may still"
    for use in (lambda: cupy.zeros(9, cupy.uint32), lambda: cupy.asarray(np.zeros(2048)), lambda: words(cupy)):
        with pytest.raises(misuse, match=freed):
            use()
    with stream:
        mine = cupy.zeros(9)
    stream.synchronize()
    assert not cupy.zeros(1024, cupy.uint32).get().any()
    assert mine.size == 9


def test_pinned_memory_that_is_freed_while_a_kernel_uses_it_has_been_given_away(cupy, read, misuse):
    from cupyx import zeros_pinned

    pinned, data = zeros_pinned(1, np.uint32), words(cupy)
    read(data, np.uint64(256), np.uint32(2), cupy.uint64(pinned.ctypes.data))
    del pinned
    with pytest.raises(
        misuse, match=r"the host writes memory that was freed at .* while read_all of .* may still use it"
    ):
        zeros_pinned(1, np.uint32)
    cupy.cuda.Stream.null.synchronize()
    assert zeros_pinned(1, np.uint32) == 0


def test_memory_that_its_own_stream_uses_may_be_freed(cupy, read):
    data, result = words(cupy), cupy.zeros(1, cupy.uint32)
    read(data, np.uint64(256), np.uint32(1), result)
    del data
    assert not cupy.zeros(1024, cupy.uint32).get().any()


def test_dynamic_shared_memory_above_48_kb_must_be_allowed_first(cupy):
    kernel = cupy.RawKernel(BIG, "empty")
    with pytest.raises(cupy.cuda.driver.CUDADriverError, match="CUDA_ERROR_INVALID_VALUE"):
        kernel((1,), (32,), (), shared_mem=60_000)
    kernel.max_dynamic_shared_size_bytes = 60_000
    kernel((1,), (32,), (), shared_mem=60_000)
    with pytest.raises(cupy.cuda.driver.CUDADriverError, match="CUDA_ERROR_INVALID_VALUE"):
        kernel.max_dynamic_shared_size_bytes = 228 << 10


def test_a_cooperative_grid_is_made_resident_with_a_warning(cupy):
    kernel = cupy.RawKernel(BIG, "empty", enable_cooperative_groups=True)
    occupancy = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
    assert occupancy(kernel.kernel.ptr, 1024, 0) == 2
    with warnings.catch_warnings(action="error"):
        kernel((16,), (1024,), ())
        cupy.RawKernel(BIG, "empty")((17,), (1024,), ())
    with pytest.warns(UserWarning, match="^The grid size will be reduced from 17 to 16, as the specified grid"):
        kernel((17,), (1024,), ())
    with pytest.raises(ValueError, match=r"The specified grid size \(9 \* 2 \* 1\) exceeds the limit \(16\)"):
        kernel((9, 2), (1024,), ())
    with (
        pytest.warns(UserWarning, match="to 0,"),
        pytest.raises(cupy.cuda.driver.CUDADriverError, match="INVALID_VALUE"),
    ):
        kernel((1,), (32,), (), shared_mem=240_000)


def test_a_name_that_is_not_in_the_module_is_not_found(cupy):
    with pytest.raises(cupy.cuda.driver.CUDADriverError, match="CUDA_ERROR_NOT_FOUND"):
        cupy.RawModule(code=READ).get_function("read_some")


def test_a_kernel_whose_jumps_are_read_from_a_table_is_found(cupy):
    """The table is in a bank of constants of its own, which cuobjdump lists before the arguments'."""
    cases = "".join(f"case {n}: a[{n}] = a[{n + 1}] * {n}.5f; break;" for n in range(1, 9))
    code = f'extern "C" __global__ void jump(float *a, int n) {{ switch (n) {{ {cases} }} }}'
    cupy.RawModule(code=code).get_function("jump")


def test_times_are_read_after_waiting(cupy):
    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="cudaErrorInvalidResourceHandle"):
        cupy.cuda.get_elapsed_time(start, stop)
    start.record()
    cupy.zeros(30_000_000, cupy.uint8)
    stop.record()
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="cudaErrorNotReady"):
        cupy.cuda.get_elapsed_time(start, stop)
    stop.synchronize()
    # 2 us of the host, 2 us of a launch, 30 MB at 3 TB/s
    assert cupy.cuda.get_elapsed_time(start, stop) == pytest.approx(0.014)


def test_a_kernel_that_never_ends_says_so_when_asked(cupy, monkeypatch):
    monkeypatch.setenv("STANDIN_FAULT", "hang BIG_FAULT")
    with cupy.cuda.Stream(non_blocking=True) as stream:
        cupy.RawKernel(f"// BIG_FAULT\n{BIG}", "empty")((1,), (32,), ())
        assert not stream.record().done
    assert not stream.done
    assert cupy.cuda.Stream(non_blocking=True).done
