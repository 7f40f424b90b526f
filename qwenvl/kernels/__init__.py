"""CPU kernels of our own, written in C++ and called through ctypes: int8 matrices and attention. Knows no models.

`available()` says whether they serve; where they cannot be built or run, `qwenvl.engine.linear` and
`qwenvl.engine.attention` fall back to torch's operators.
"""

from qwenvl.kernels.library import available, current, supported, use

__all__ = ["available", "current", "supported", "use"]
