"""What Prometheus reads, and the id by which a request is found in answers, errors and the log."""

import io
import logging

import pytest
from prometheus_client.parser import text_string_to_metric_families

from qwenvl.messages import Answer, Timings, Usage
from qwenvl.metrics import BUCKETS_S, STAGES, Metrics
from tests.conftest import png, wait_until
from tests.fake_engine import FakeEngine
from tests.test_web import events, form

NOTHING = dict.fromkeys(("running", "waiting", "uploads", "memory_budget_bytes", "engine_restarts"), 0)
NOTHING |= {"ready": True, "info": {}}


def read(text: bytes) -> dict:
    """{(name, label value or None): value}, as Prometheus' own parser understands it."""
    samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name != "le"}
            key = (sample.name, *labels.values(), *([sample.labels["le"]] if "le" in sample.labels else []))
            samples[key] = sample.value
    return samples


def test_a_question_leaves_its_traces(make_client):
    client = make_client()
    client.post("/upload", data=form(png(), question="hello"))
    client.post("/upload", data={"question": "fail"})
    client.post("/upload", data={"question": "raise"})
    client.post("/upload", data={"question": ""})
    client.post("/images", data={"image": (io.BytesIO(b"GIF"), "x")})
    client.get("/nowhere")
    samples = read(client.get("/metrics").get_data())
    assert samples["qwenvl_answers_total", "stop"] == 1
    assert samples["qwenvl_failures_total", "internal"] == 2
    assert samples["qwenvl_rejections_total", "missing_image"] == 1
    assert samples["qwenvl_rejections_total", "invalid_image"] == 1
    assert samples["qwenvl_rejections_total", "not_found"] == 1
    assert samples["qwenvl_tokens_total", "prompt"] == 72
    assert samples["qwenvl_tokens_total", "completion"] > 0
    assert samples["qwenvl_stage_seconds_count", "total"] == samples["qwenvl_stage_seconds_count", "queue"] == 1
    assert samples["qwenvl_model_info", "fake", "fake", "none", "1"] == 1
    assert samples["qwenvl_cache_misses_total", "feature"] == 1
    assert samples["qwenvl_uploads",] == samples["qwenvl_ready",] == 1
    assert samples["process_resident_memory_bytes",] > 10_000_000


def test_running_and_waiting_are_told_as_they_are(make_client):
    client = make_client(FakeEngine(slice_s=0.01))
    service = client.application.extensions["qwenvl"].service
    tickets = [service.ask(service.question([], "forever"), lambda message: None) for _ in range(3)]
    wait_until(lambda: read(service.metrics.render())["qwenvl_running",] == 1)
    assert read(service.metrics.render())["qwenvl_waiting",] == 2
    for ticket in tickets:
        ticket.cancel()
    wait_until(lambda: read(service.metrics.render()).get(("qwenvl_answers_total", "cancelled")) == 3)


def test_times_fall_into_their_buckets():
    metrics = Metrics(lambda: NOTHING)
    for seconds in (0.005, 0.1, 0.2, 1e6):
        metrics.answered(Answer("", "stop", "m", usage=Usage(), timings=Timings(total_s=seconds)))
    samples = read(metrics.render())
    by_limit = [samples["qwenvl_stage_seconds_bucket", "total", str(limit)] for limit in BUCKETS_S]
    assert by_limit[:4] == [1, 1, 2, 3] and by_limit == sorted(by_limit) and by_limit[-1] == 3
    assert samples["qwenvl_stage_seconds_bucket", "total", "+Inf"] == 4
    assert samples["qwenvl_stage_seconds_sum", "total"] == pytest.approx(1_000_000.305)
    assert {key[1] for key in samples if key[0] == "qwenvl_stage_seconds_count"} == set(STAGES)


def test_before_the_model_is_there_metrics_are():
    samples = read(Metrics(lambda: {**NOTHING, "ready": False}).render())
    assert samples["qwenvl_ready",] == 0


def test_two_services_count_apart(make_client):
    first, second = make_client(), make_client()
    first.post("/upload", data={"question": "hi"})
    assert ("qwenvl_answers_total", "stop") not in read(second.get("/metrics").get_data())


@pytest.mark.parametrize("fields", [{"question": "hi"}, {"question": ""}, {"question": "fail"}])
@pytest.mark.parametrize("stream", ["", "1"])
def test_every_answer_and_error_carries_its_id_and_the_log_knows_it(make_client, caplog, fields, stream):
    caplog.set_level(logging.INFO)
    client = make_client()
    response = client.post("/upload", data={**fields, "stream": stream})
    request_id = response.headers["X-Request-ID"]
    last = events(response)[-1][1] if response.mimetype == "text/event-stream" else response.get_json()
    assert last["request_id"] == request_id
    lines = [record.getMessage() for record in caplog.records if f"id={request_id}" in record.getMessage()]
    assert len(lines) == 1 and "client=127.0.0.1" in lines[0]


def test_ids_differ(make_client):
    client = make_client()
    assert len({client.get("/health").headers["X-Request-ID"] for _ in range(50)}) == 50
