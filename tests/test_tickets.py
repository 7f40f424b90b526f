"""How far loading is, and how long it will take, as `/health` says it."""

from qwenvl.messages import Transfer
from qwenvl.tickets import LoadState


def test_the_time_left_follows_from_the_pace_of_this_stage_alone():
    state = LoadState().moved("importing", 0.0, None, 10.0)
    assert "eta_s" not in state.fields()
    state = state.moved("quantising", 0.5, None, 20.0)
    assert "eta_s" not in state.fields()  # a stage that begins half-way has no pace yet
    state = state.moved("quantising", 0.51, None, 30.0)
    assert "eta_s" not in state.fields()  # nor has so little
    state = state.moved("quantising", 0.75, None, 45.0)
    assert state.fields() == {"stage": "quantising", "fraction": 0.75, "eta_s": 25.0}
    state = state.moved("quantising", 0.1, None, 50.0)  # it began anew
    assert "eta_s" not in state.fields()


def test_a_download_has_its_bytes_and_the_time_that_its_rate_gives():
    fields = LoadState().moved("downloading", 0.25, Transfer(100, 400, 20.0), 1.0).fields()
    assert fields == {
        "stage": "downloading", "fraction": 0.25, "eta_s": 15.0,
        "bytes_done": 100, "bytes_total": 400, "rate_bytes_s": 20.0,
    }  # fmt: skip
    stalled = LoadState().moved("downloading", 0.25, Transfer(100, 400, 0.0), 1.0).fields()
    assert "eta_s" not in stalled and stalled["rate_bytes_s"] == 0.0
