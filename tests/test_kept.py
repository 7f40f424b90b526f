"""Answers that wait for a page to come back keep their text, and nothing of the question: pictures are large."""

import gc
import weakref

import pytest

from qwenvl.errors import Internal
from qwenvl.messages import Answer, Failed, Finished
from qwenvl.web.kept import KeptAnswers


class Ticket:
    """Stands for the real one, which holds the question and its pictures."""

    def cancel(self):
        pass


@pytest.mark.parametrize("end", [Finished(Answer("text", "stop", "fake")), Failed(Internal("It broke."))])
def test_what_was_asked_is_gone_when_the_answer_has_ended(end):
    sent = []
    answers = KeptAnswers(lambda *event: sent.append(event), resume_grace_s=60.0)
    kept = answers.open("a page", "a question", "a socket")
    ticket = Ticket()
    kept.run_as(ticket)
    kept.accept(end)
    answers.close("a page", kept)
    gone = weakref.ref(ticket)
    del ticket
    gc.collect()
    assert gone() is None
    kept.stop()  # harmless after the end
    assert answers.find("a page", "a question") is kept and len(sent) == 1
