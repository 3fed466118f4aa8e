"""Profiles of one kernel: nsys, ncu and the built-in timeline."""

from common.errors.interrupt import while_importing
from common.garbage import search_seldom

while_importing()
search_seldom()
