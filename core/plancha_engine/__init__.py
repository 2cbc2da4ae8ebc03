"""Models, attention, sampling and weights: what computes a step on one device."""

import os

# libgomp reads this when torch first loads it, which only modules of this package do. By default
# its threads spin for milliseconds at every barrier; when another process wants the cores, a step
# then takes up to 20 times as long. This many turns are some 40 µs: longer than Python's gaps
# between two kernels, short enough to give the core back.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
