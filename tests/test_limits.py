"""What one client may take: questions open, requests a minute, and its turn in the line."""

import random

import pytest

from qwenvl import limits
from qwenvl.errors import RateLimited
from qwenvl.limits import Pace, client_of
from qwenvl.line import Line
from qwenvl.messages import Question
from qwenvl.tickets import Asker, Ticket
from tests.conftest import Listener, wait_until
from tests.fake_engine import FakeEngine
from tests.test_web import assert_error


def ticket(client):
    return Ticket(Question((), ""), None, Asker(client), 60.0, lambda: None)


def clients(line):
    return "".join(one.asker.client for one in line)


def filled(names):
    line = Line()
    for name in names:
        line.add(ticket(name))
    return line


@pytest.mark.parametrize(
    ("arrivals", "order"),
    [
        ("aaaa", "aaaa"),
        ("abc", "abc"),
        ("aaab", "abaa"),
        ("aaabbc", "abcaba"),
        ("abab", "abab"),
        ("aaaabbbb", "abababab"),
    ],
)
def test_clients_take_turns(arrivals, order):
    assert clients(filled(arrivals)) == order


def test_a_newcomer_waits_for_one_question_of_each_at_most():
    line = filled("aaaaaabbbbbb")
    for _ in range(5):
        line.take()
    line.add(ticket("c"))
    assert clients(line).index("c") <= 2


def test_an_idle_client_saves_nothing_up_and_owes_nothing():
    line = filled("aaaa")
    while len(line):
        line.take()
    for name in "babab":
        line.add(ticket(name))
    assert clients(line) == "babab"


def test_a_client_that_gives_questions_up_is_as_if_it_had_never_asked_them():
    line = filled("aaaab")
    for one in [one for one in line if one.asker.client == "a"][1:3]:
        line.remove(one)
    line.add(ticket("b"))
    line.add(ticket("a"))
    assert clients(line) == "ababa"


def test_any_history_keeps_each_clients_order_and_everybody_moves_up():
    chance = random.Random(6)
    line, alive, served = Line(), [], []
    for _ in range(3000):
        what = chance.random()
        if what < 0.5:
            alive.append(ticket(chance.choice("aaaabbc")))
            line.add(alive[-1])
        elif alive and what < 0.8:
            assert line.first() is next(iter(line))
            served.append(line.take())
            alive.remove(served[-1])
        elif alive:
            line.remove(alive.pop(chance.randrange(len(alive))))
        assert sorted(map(id, line)) == sorted(map(id, alive)) and len(line) == len(alive)
        for client in "abc":
            assert [one for one in line if one.asker.client == client] == [
                one for one in alive if one.asker.client == client
            ]
    for client in "abc":
        times = [one.asked_at for one in served if one.asker.client == client]
        assert times == sorted(times)


def test_the_scheduler_serves_in_turns_and_says_so(make_service):
    engine = FakeEngine(slice_s=0.01)
    service = make_service(engine)

    def ask(text, client):
        listener = Listener()
        listener.ticket = service.ask(service.question([], text), listener, Asker(client))
        return listener

    blocker = ask("forever", "x")
    wait_until(lambda: engine.started)
    greedy = [ask(f"greedy {number}", "a") for number in range(3)]
    wait_until(lambda: greedy[2].messages)
    modest = ask("modest", "b")
    wait_until(lambda: [m.position for m in greedy[1].messages] == [2, 3])  # `modest` came in between
    blocker.ticket.cancel()
    wait_until(lambda: len(engine.started) == 5)
    assert engine.started == ["forever", "greedy 0", "modest", "greedy 1", "greedy 2"]
    assert [m.position for m in modest.messages if getattr(m, "stage", "") == "queued"] == [2, 1]


def test_a_client_has_so_many_questions_open_and_others_are_not_in_its_way(make_service):
    service = make_service(FakeEngine(slice_s=0.01), client_questions=2)
    question = service.question([], "forever")
    tickets = [service.ask(question, Listener(), Asker("a")) for _ in range(2)]
    with pytest.raises(RateLimited, match="2 questions"):
        service.ask(question, Listener(), Asker("a"))
    with pytest.raises(RateLimited):
        service.check_open("a")
    service.ask(question, Listener(), Asker("b"))
    tickets[0].cancel()
    wait_until(lambda: service.health()[1]["queue"]["running"] + service.health()[1]["queue"]["waiting"] == 2)
    service.ask(question, Listener(), Asker("a"))


@pytest.fixture
def clock(monkeypatch):
    moment = [0.0]
    monkeypatch.setattr(limits.time, "monotonic", lambda: moment[0])
    return moment


def test_a_minutes_requests_may_come_at_once_and_then_evenly(clock):
    pace = Pace(60)
    for _ in range(60):
        pace.count("a")
    with pytest.raises(RateLimited) as refused:
        pace.count("a")
    assert refused.value.retry_after_s == 1
    pace.count("b")  # who has nothing to do with it
    clock[0] += refused.value.retry_after_s
    pace.count("a")
    with pytest.raises(RateLimited):
        pace.count("a")
    clock[0] += 3600
    for _ in range(60):
        pace.count("a")
    with pytest.raises(RateLimited):
        pace.count("a")


def test_waiting_as_told_is_always_enough(clock):
    pace = Pace(7)
    for _ in range(40):
        try:
            pace.count("a")
        except RateLimited as refused:
            clock[0] += refused.retry_after_s
            pace.count("a")


def test_clients_that_stay_away_are_forgotten(clock, monkeypatch):
    monkeypatch.setattr(limits, "MOST_KEPT", 10)
    pace = Pace(60)
    for number in range(1000):
        clock[0] += 1
        pace.count(f"client {number}")
    assert len(pace._kept) <= 11


def test_zero_is_no_limit():
    pace = Pace(0)
    for _ in range(10_000):
        pace.count("a")


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::ffff", "2001:db8:1:2::/64"),
        ("", "unknown"),
        (None, "unknown"),
        ("_proxy\n", "unknown"),
    ],
)
def test_an_address_names_a_client(address, client):
    assert client_of(address) == client


def test_too_many_requests_get_429_and_health_does_not_count(make_client):
    client = make_client(client_requests_per_minute=3)
    for _ in range(3):
        assert client.post("/upload", data={"question": "hi"}).status_code == 200
    assert_error(client.post("/upload", data={"question": "hi"}), 429, "rate_limited")
    assert_error(client.post("/images"), 429, "rate_limited")
    assert client.get("/health").status_code == client.get("/").status_code == 200
    other = {"REMOTE_ADDR": "192.0.2.9"}
    assert client.post("/upload", data={"question": "hi"}, environ_base=other).status_code == 200


@pytest.mark.parametrize("proxies", [0, 1, 2])
def test_only_as_many_proxies_are_believed_as_there_are(make_client, proxies):
    """What a client writes itself stands before what proxies add, and changes nothing."""
    client = make_client(client_requests_per_minute=1, proxies=proxies)

    def ask(chain):
        headers = {"X-Forwarded-For": chain, "X-Forwarded-Proto": "https"}
        return client.post("/upload", data={"question": "hi"}, headers=headers).status_code

    assert ask("forged-1, 192.0.2.1, 198.51.100.1") == 200
    assert ask("203.0.113.9, 192.0.2.1, 198.51.100.1") == 429
    assert ask("203.0.113.9, 192.0.2.2, 198.51.100.1") == (200 if proxies == 2 else 429)
    assert ask("203.0.113.9, 192.0.2.3, 198.51.100.2") == (200 if proxies else 429)
