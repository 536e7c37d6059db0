"""The newest answer to each question: what has not changed stays the same object."""

from typing import Any

from exporter.bundle.collecting.budget import Budget
from exporter.bundle.collecting.newest_answers import NewestAnswers
from exporter.bundle.recording import PeerAnswer, RecordedMoment
from exporter.errors import Trouble

PATH = "/api/v1/pods"
GONE = Trouble("unreachable", "the connection broke", "look at its log")


def pod(uid: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": f"pod-{uid}", "uid": uid, "labels": labels}}


def the_body(answers: NewestAnswers) -> bytes:
    (answer,) = answers.answers_now()
    assert answer.trouble is None
    return answer.body


def test_a_collection_is_kept_up_to_date() -> None:
    answers = NewestAnswers()
    answers.listed("kubernetes", "pods", PATH, [pod("1"), pod("2")])
    before = the_body(answers)
    assert the_body(answers) is before
    answers.listed("kubernetes", "pods", PATH, [pod("2"), pod("1")])
    assert the_body(answers) is before
    answers.changed("kubernetes", "pods", PATH, pod("3", app="x"), is_gone=False)
    answers.changed("kubernetes", "pods", PATH, pod("1"), is_gone=True)
    assert b"pod-1" not in the_body(answers)
    assert b'"app":"x"' in the_body(answers)
    answers.failed("kubernetes", "pods", PATH, GONE)
    assert answers.answers_now() == (PeerAnswer(peer="kubernetes", name="pods", question=PATH, trouble=GONE),)
    # a watch that goes on tells only what has changed
    answers.changed("kubernetes", "pods", PATH, pod("4"), is_gone=False)
    assert [uid in the_body(answers) for uid in (b"pod-2", b"pod-3", b"pod-4")] == [True] * 3


def test_a_page_and_its_failure() -> None:
    answers = NewestAnswers()
    answers.answered("page", "dcgm", "http://a", b"x 1\n")
    answers.answered("page", "dcgm", "http://b", b"y 1\n")
    first, second = answers.answers_now()
    answers.failed("page", "dcgm", "http://b", GONE)
    assert answers.answers_now()[0] is first
    assert answers.answers_now()[1].trouble == GONE
    answers.answered("page", "dcgm", "http://b", b"y 1\n")
    assert answers.answers_now() == (first, second)


def test_a_call_of_nvml_that_comes_again_is_the_same_object() -> None:
    answers = NewestAnswers()
    for _ in range(2):
        answers.called("nvmlDeviceGetCount", (), 8, 0)
        answers.called("nvmlDeviceGetSerial", (0,), None, 3)
    calls = answers.take_calls()
    assert [call.function for call in calls] == ["nvmlDeviceGetCount", "nvmlDeviceGetSerial"] * 2
    assert calls[0] is calls[2]
    assert answers.take_calls() == ()
    answers.logged(b"6,1,2,-;NVRM: Xid")
    assert answers.take_records() == ("6,1,2,-;NVRM: Xid",)
    assert answers.take_records() == ()


def test_what_is_the_same_at_several_moments_counts_once() -> None:
    body = b"x" * 1000
    budget = Budget(2500)
    made = [
        RecordedMoment(
            at_seconds=float(number),
            answers=(PeerAnswer(peer="page", name="dcgm", question="http://a", body=bytes(bytearray(body))),),
            outputs={"/": bytes(bytearray(body))},
        )
        for number in range(4)
    ]
    shared = [budget.shared(moment) for moment in made[:3]]
    assert not budget.is_full
    assert len({id(content) for moment in shared for content in (moment.answers[0].body, moment.outputs["/"])}) == 1
    budget.shared(made[3])
    assert budget.is_full
