"""A service that moved by the two rules: what it imports is there, and does what it did."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from supervisor.app.configuration import load
from supervisor.compat.cloudforet import MISSING, Locator, cache
from supervisor.compat.cloudforet.error import (
    ERROR_CACHE_CONFIGURATION,
    ERROR_CACHE_DECODE,
    ERROR_CACHE_OPTION,
    ERROR_CONNECTOR,
    ERROR_CONNECTOR_LOAD,
    ERROR_INVALID_PARAMETER_TYPE,
    ERROR_REQUIRED_PARAMETER,
    ERROR_UNSUPPORTED_API,
)
from supervisor.compat.cloudforet.tasks import runtime
from supervisor.compat.cloudforet.tasks.check import examine
from supervisor.compat.cloudforet.transaction import entered
from supervisor.settings.sections.cloudforet import CloudforetSettings
from tests import oldservice
from tests.kit.servers import Server

BACKEND = """
from supervisor.compat.cloudforet import SpaceConnector

calls = []


class Recorded(SpaceConnector):
    def call(self, resource, verb, params, metadata):
        calls.append((self.endpoint, resource, verb, params, metadata))
        return {"status": {"state": "ENABLED"}}
"""


@pytest.fixture
def moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory that holds the moved service."""
    oldservice.move(tmp_path)
    (tmp_path / "oldservice" / "calls.py").write_text(BACKEND)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    runtime.configure(CloudforetSettings())
    for name in [each for each in sys.modules if each.partition(".")[0] == "oldservice"]:
        del sys.modules[name]


def configured(**config: Any) -> Locator:
    """Return the locator of a service with these keys in its configuration."""
    runtime.configure(CloudforetSettings(packages=("oldservice",), token=SecretStr("t0ken"), config=config))
    return Locator()


def connectors(**more: Any) -> dict[str, Any]:
    """Return ``CONNECTORS`` with calls to other services recorded."""
    endpoints = {"identity": "grpc://identity:50051"}
    return {"SpaceConnector": {"backend": "oldservice.calls:Recorded", "endpoints": endpoints}, **more}


def test_a_service_calls_another_by_the_connector_that_the_configuration_names(moved: Path) -> None:
    """``dispatch`` sends endpoint, resource, verb, parameters and the token of the stage."""
    assert moved
    service = configured(CONNECTORS=connectors()).get_service("DomainService", {"token": "t0ken"})

    with entered(service.transaction):
        found = service.get({"domain_id": "d", "size": "2"})
    assert found == {"domain_id": "d ENABLED", "size": 2}
    calls = import_module("oldservice.calls").calls
    metadata = {"token": "t0ken", "x_domain_id": "d"}
    assert calls == [("grpc://identity:50051", "Domain", "get", {"domain_id": "d"}, metadata)]


def test_a_connector_without_a_place_or_a_way_to_call_says_so(moved: Path) -> None:
    """There is no gRPC client here: the error names what to write."""
    assert moved
    without = {"SpaceConnector": {"endpoints": {"identity": "grpc://identity:50051"}}, "MailConnector": {"host": "mx"}}
    locator = configured(CONNECTORS=without)

    with pytest.raises(ERROR_UNSUPPORTED_API, match=r"has call\(\); name it in CONNECTORS.SpaceConnector.backend"):
        locator.get_manager("DomainManager").get_state("d")
    with pytest.raises(ERROR_CONNECTOR_LOAD, match="endpoints has no billing"):
        locator.get_connector("SpaceConnector", service="billing")
    with pytest.raises(ERROR_CONNECTOR, match=r"'Domain' is no Resource\.verb"):
        locator.get_connector("SpaceConnector", endpoint="x").dispatch("Domain")
    assert locator.get_connector("MailConnector").host() == "mx"


def test_parameters_are_changed_and_refused_as_their_decorators_say(moved: Path) -> None:
    """Keys with dots, lists and keywords; a model of pydantic; and each error names its key."""
    assert moved
    service = configured(CONNECTORS=connectors()).get_service("DomainService")
    query = {"page": {"limit": 5000}, "keyword": " one  two "}

    assert service.list({"domain_id": "d", "workspace_id": ["w"], "query": query})["query"] == {
        "page": {"limit": 100},
        "filter": [{"k": "domain_id", "v": "d", "o": "eq"}, {"k": "workspace_id", "v": ["w", "*"], "o": "in"}],
        "filter_or": [{"k": "name", "v": ["one", "two"], "o": "contain_in"}],
    }
    with pytest.raises(ERROR_REQUIRED_PARAMETER, match=r"key = query\.page"):
        service.list({"query": {}})
    with pytest.raises(ERROR_REQUIRED_PARAMETER, match="key = domain_id"):
        service.get({})
    with pytest.raises(ERROR_INVALID_PARAMETER_TYPE, match="key = domain_id, type = string"):
        service.get({"domain_id": 5})


def test_a_cache_is_shared_with_services_that_have_not_moved(
    moved: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys and values are those of the original; what one side forgets the other does not return."""
    assert moved
    monkeypatch.setattr(cache, "connected", lambda _entry: server.store())
    caches = {"default": {"backend": "spaceone.core.cache.redis_cache.RedisCache", "host": server.keys.prefix}}
    manager = configured(CONNECTORS=connectors(), CACHES=caches).get_manager("DomainManager")

    assert [manager.get_state("d"), manager.get_state("d"), manager.get_state("e")] == ["ENABLED"] * 3
    assert len(import_module("oldservice.calls").calls) == 2
    with server.raw() as theirs:
        assert theirs.get("old:domain-state:d") == b'"ENABLED"'
        assert 0 < theirs.ttl("old:domain-state:d") <= 60
        theirs.set("old:domain-state:d", b'"DISABLED"')
        assert manager.get_state("d") == "DISABLED"
        theirs.set("broken", b"{")
    with pytest.raises(ERROR_CACHE_DECODE):
        cache.get("broken")
    assert [cache.increment("n"), cache.increment("n", 5), cache.decrement("n")] == [1, 6, 5]
    assert cache.ttl("n") == -1
    assert cache.delete_pattern("old:domain-state:*") == 2
    assert [cache.get("old:domain-state:d"), cache.delete("n", "none"), cache.delete()] == [None, 1, 0]


def test_a_cache_in_memory_is_bounded_and_one_that_is_not_configured_is_left_out(moved: Path) -> None:
    """``cacheable`` then calls the function each time; other calls name what is missing."""
    assert moved
    local = {"backend": "spaceone.core.cache.local_cache.LocalCache", "max_size": 2, "ttl": 60}
    manager = configured(CONNECTORS=connectors(), CACHES={"default": {}, "local": local}).get_manager("DomainManager")

    assert [manager.get_state("d"), manager.get_state("d")] == ["ENABLED"] * 2
    assert len(import_module("oldservice.calls").calls) == 2
    with pytest.raises(ERROR_CACHE_CONFIGURATION, match=r"CACHES\.default is missing"):
        cache.get("a")
    for key in "abc":
        cache.set(key, [key], alias="local")
    assert [cache.get(key, alias="local") for key in "abc"] == [None, ["b"], ["c"]]
    for refused in (cache.increment, cache.delete_pattern):
        with pytest.raises(ERROR_CACHE_OPTION):
            refused("a", alias="local")


@pytest.mark.parametrize("name", sorted(MISSING))
def test_what_is_not_here_says_why(name: str) -> None:
    """The first import that fails is what the operator reads."""
    scope: dict[str, Any] = {}
    with pytest.raises(ImportError, match=f"{name} of spaceone.core is not here: .*docs/cloudforet-services.md"):
        exec(f"from supervisor.compat.cloudforet import {name}", scope)


def test_what_a_service_lacks_is_named_before_anything_is_due(moved: Path) -> None:
    """Each class of a schedule, and what tasks need, by the words of the import that fails."""
    package = moved / "oldservice"
    (package / "modelled.py").write_text(
        "from supervisor.compat.cloudforet import MongoModel\n\n\nclass Hourly:\n    pass\n"
    )
    (package / "manager" / "__init__.py").write_text("from oldservice.modelled import Hourly\n")
    classes = ["interface.task.v1.cleanup_scheduler.CleanupScheduler", "modelled.Hourly", "calls.calls"]
    schedules = {
        f"s{number}": {"job": "cloudforet.plan", "every": "1h", "args": {"backend": f"oldservice.{name}", "queue": "q"}}
        for number, name in enumerate(classes)
    }
    file = moved / "tenure.yaml"
    file.write_text(f"version: 1\ncloudforet: {{packages: [oldservice]}}\nschedules: {schedules}\n")

    found = dict(examine(load(files=[file], environ={}, flags={}).settings))

    why = "MongoModel of spaceone.core is not here: models stay with the database library"
    assert found[f"oldservice.{classes[0]}"] == ""
    assert why in found["oldservice.modelled.Hourly"]
    assert "is neither a scheduler nor a handler" in found["oldservice.calls.calls"]
    assert why in found["oldservice.service"]
    assert why in found["oldservice.manager"]


def test_a_library_that_a_service_lacks_is_named(moved: Path) -> None:
    """What is missing may be no part of Cloudforet's core at all."""
    (moved / "oldservice" / "manager" / "__init__.py").write_text("import no_such_library\n")
    file = moved / "tenure.yaml"
    schedule = "{job: cloudforet.plan, every: 1h, args: {queue: q, backend: oldservice.calls.Recorded}}"
    file.write_text(f"version: 1\ncloudforet: {{packages: [oldservice]}}\nschedules: {{s: {schedule}}}\n")

    found = dict(examine(load(files=[file], environ={}, flags={}).settings))

    assert found["oldservice.manager"] == "oldservice.manager needs no_such_library, which is not installed"


def test_a_service_whose_names_are_all_here_has_nothing_to_tell(moved: Path) -> None:
    """Nor has one whose tasks are executed by SpaceONE's workers: its services are not asked for."""
    schedule = "{job: cloudforet.plan, every: 1h, args: {queue: q, backend: %s}}"
    scheduler = "oldservice.interface.task.v1.cleanup_scheduler.CleanupScheduler"
    file = moved / "tenure.yaml"
    text = f"version: 1\njobs: [supervisor.compat.cloudforet.jobs]\nschedules: {{s: {schedule % scheduler}}}\n"
    for rest, parts in (("", [".service", ".manager"]), (", queues: {q: {bridge: emit}}", [])):
        file.write_text(f"{text}cloudforet: {{packages: [oldservice]{rest}}}\n")
        found = list(examine(load(files=[file], environ={}, flags={}).settings))
        assert found == [(scheduler, ""), *((f"oldservice{part}", "") for part in parts)]
