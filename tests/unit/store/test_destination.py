"""Destinations of producers: a name that is probably mistyped is refused, a queue without workers is a warning."""

from __future__ import annotations

import logging

import pytest

from supervisor.core.errors import EXIT_CONFIG
from supervisor.store.producer.destination import CHECK_NS, QUEUES_MAX, Destination, UnknownClusterError
from supervisor.store.queues.reads import Served


def test_a_cluster_that_nobody_serves_beside_others_is_refused_with_their_names() -> None:
    """The commonest mistake: TENURE_REDIS__URL alone, and the runs of a web application wait in `default` for ever."""
    with pytest.raises(UnknownClusterError) as caught:
        Destination("default", is_configured=False).judge(
            "mail", Served.NO_CLUSTER, ["shop", "mailer", "default"], asked_ns=0
        )

    assert "cluster default was ever seen in this database, which holds mailer, shop; name the cluster" in str(
        caught.value
    )
    for remedy in ("TENURE_CONFIG", "connect(config=", "TENURE_CLUSTER", "start a replica of it first"):
        assert remedy in str(caught.value)
    assert caught.value.exit_code == EXIT_CONFIG


def test_many_other_clusters_are_shown_by_the_first_names() -> None:
    """A message is read, a thousand names are not."""
    with pytest.raises(UnknownClusterError, match=r"c0, c1, c10.*c16, c17 and more"):
        Destination("x", is_configured=False).judge(
            "mail", Served.NO_CLUSTER, [f"c{n}" for n in range(100)], asked_ns=0
        )


@pytest.mark.parametrize(
    ("served", "others", "origin", "words"),
    [
        (Served.NO_CLUSTER, [], "code", "no replica of cluster shop was ever seen; its runs wait until one starts"),
        (Served.NO_CLUSTER, ["shop"], "code", "no replica of cluster shop was ever seen"),
        (Served.NO_CLUSTER, ["mailer"], "file", "no replica of cluster shop was ever seen"),
        (Served.NO, ["mailer"], "code", "no live worker takes runs from queue mail of cluster shop"),
    ],
)
def test_what_may_yet_be_served_is_a_warning(
    served: Served, others: list[str], origin: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A web application may start before its workers do."""
    with caplog.at_level(logging.WARNING, "tenure.producer"):
        Destination("shop", is_configured=origin == "file").judge("mail", served, others, asked_ns=0)

    (record,) = caplog.records
    assert words in record.getMessage()


def test_a_queue_that_workers_take_from_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever enqueues rightly reads nothing."""
    Destination("shop", is_configured=False).judge("mail", Served.YES, ["mailer"], asked_ns=0)

    assert not caplog.records


def test_a_queue_is_checked_once_a_minute_and_after_a_refusal_at_once() -> None:
    """A check is one more round trip; who corrected the mistake is not kept waiting."""
    subject = Destination("default", is_configured=False)

    assert subject.is_due("mail", 0)
    subject.judge("mail", Served.YES, [], asked_ns=0)
    assert not subject.is_due("mail", CHECK_NS - 1)
    assert subject.is_due("other", CHECK_NS - 1)
    assert subject.is_due("mail", CHECK_NS)
    assert not subject.is_due("mail", CHECK_NS), "one caller checks, the others go on"
    with pytest.raises(UnknownClusterError):
        subject.judge("mail", Served.NO_CLUSTER, ["shop"], asked_ns=CHECK_NS)
    assert subject.is_due("mail", CHECK_NS)


def test_the_memory_of_checked_queues_is_bounded() -> None:
    """Names of queues may come from users."""
    subject = Destination("default", is_configured=False)
    for n in range(3 * QUEUES_MAX):
        subject.judge(f"q{n}", Served.YES, [], asked_ns=0)

    assert len(subject._checked_ns) <= QUEUES_MAX


def test_calls_beside_the_first_check_are_refused_as_it_is() -> None:
    """Threads that begin together: none may enqueue into a mistyped cluster while another one asks."""
    subject = Destination("default", is_configured=False)

    for asked_ns in range(3):
        assert subject.is_due("mail", asked_ns), "the others wait for no answer, so each must get its own"
    for asked_ns in range(3):
        with pytest.raises(UnknownClusterError):
            subject.judge("mail", Served.NO_CLUSTER, ["shop"], asked_ns=asked_ns)


def test_calls_beside_the_first_check_warn_once(caplog: pytest.LogCaptureFixture) -> None:
    """A hundred tasks that begin together are one line in the log."""
    subject = Destination("shop", is_configured=False)

    with caplog.at_level(logging.WARNING, "tenure.producer"):
        for asked_ns in range(3):
            subject.judge("mail", Served.NO, [], asked_ns=asked_ns)

    assert len(caplog.records) == 1
