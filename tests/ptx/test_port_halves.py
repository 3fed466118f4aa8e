"""The two halves of the port, CUDA's and the host device's: they declare the same."""

from port_text import CUDA, HOST, functions, macros


def test_both_halves_declare_the_same():
    assert functions(CUDA) == functions(HOST)
    own = {"SHARED_BYTES": "(Kernel)"}, {"HOST_ENTRY": "(Kernel, Threads, call)", "PLACED": ""}
    assert macros(CUDA) | own[1] == macros(HOST) | own[0]
