"""The bundled demo model really answers: a sample of held-out pictures, and what its files may weigh.

`scripts/evaluate_demo_model.py` measures more of them, and `docs/demo-model.md` has its figures. The bounds here are
what is asked of the model.
"""

import pytest

from demo_model.accuracy import answers, held_out, scores
from qwenvl import kernels
from qwenvl.engine.engine import Engine
from qwenvl.engine.hub import DEMO, DEMO_FOLDER
from qwenvl.engine.loading import load_model
from tests.engine.conftest import silent

COUNT = 200


@pytest.fixture(scope="module")
def asked():
    return list(held_out(COUNT))


@pytest.fixture(scope="module")
def said(asked):
    return {
        quantization: answers(Engine(load_model(DEMO, quantization, "", silent), slots=16), asked)
        for quantization in ("int8", "int4", "none")
    }


def rate(asked, said, kind: str) -> float:
    right, count = scores(asked, said)[kind]
    assert count > COUNT / 4
    return right / count


def test_shapes_and_reading_on_held_out_pictures(asked, said):
    assert rate(asked, said["int8"], "shapes") >= 0.95
    assert rate(asked, said["int8"], "reading") >= 0.85


def test_int8_answers_as_float_does(asked, said):
    differ = sum(a != b for a, b in zip(said["int8"], said["none"], strict=True))
    assert differ <= COUNT * 0.04
    for kind in ("shapes", "reading"):
        assert abs(rate(asked, said["int8"], kind) - rate(asked, said["none"], kind)) <= 0.02


@pytest.mark.skipif(not kernels.available(), reason="int4 needs kernels of our own")
def test_int4_answers_nearly_as_float_does(asked, said):
    """It is less exact than int8, and here it may be seen how much."""
    differ = sum(a != b for a, b in zip(said["int4"], said["none"], strict=True))
    assert differ <= COUNT * 0.08
    for kind in ("shapes", "reading"):
        assert abs(rate(asked, said["int4"], kind) - rate(asked, said["none"], kind)) <= 0.05


def test_it_is_small():
    assert sum(file.stat().st_size for file in DEMO_FOLDER.iterdir()) < 12_000_000
