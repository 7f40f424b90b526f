"""The instruction sets to try: every one that is compiled and that this CPU has."""

import pytest

from qwenvl import kernels


@pytest.fixture(params=["plain", "avx2", "avx_vnni", "avx512_vnni"])
def isa(request) -> str:
    if request.param not in kernels.supported():
        pytest.skip(f"no {request.param} here")
    before = kernels.current()
    kernels.use(request.param)
    yield request.param
    kernels.use(before or "stock")
