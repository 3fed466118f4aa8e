"""Fixtures of this folder's tests."""

from kernels import alone, baseline, launch, open_session, same_in_any_order, synthetic  # noqa: F401
