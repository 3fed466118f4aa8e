"""A row of the store by hand, with all that the lab reads of it: kind `run`, of the baseline on the PTX device."""

RUN = {
    "kind": "run", "key": "0" * 16, "variant": "baseline", "stack": [], "parent": [], "knobs": {},
    "model": {
        "name": "tiny", "hidden": 64, "intermediate": 160, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 32,
        "vocab": 503, "positions": 64, "rope_theta": 1e6, "rms_eps": 1e-6, "tied": True,
    },
    "weights": {"sha": "0" * 64, "source": "synthetic version 1 seed 7"},
    "device": {"device": "ptx", "target": "sm_90", "races": False, "compiler": "NVRTC 13.0"},
    "threads": 256, "seed": 7, "asked": None, "provenance": {},
    "status": "PASSED", "reason": "", "report": "", "source_sha": "0" * 64, "blocks": 8, "verdict": None,
    "counts": None, "resources": {}, "latencies": [], "generation": None,
}  # fmt: skip
