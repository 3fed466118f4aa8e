"""Stand-in for cupy.cuda."""

from cupy.cuda import compiler, driver, function, memory, runtime
from cupy.cuda._streams import Event, Graph, Stream, get_current_stream, get_elapsed_time
from cupy.cuda.device import Device
from cupy.cuda.function import Function

__all__ = ["Device", "Event", "Function", "Graph", "Stream", "get_current_stream", "get_elapsed_time"]
__all__ += ["compiler", "driver", "function", "memory", "runtime"]
