"""A client of grpc.health.v1 in a process of its own: gRPC's threads must not be in one that forks.

Reads a request as JSON from each line of its input, writes the answer as JSON to its output.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

S = 30.0


def main(port: str) -> None:
    """Answer until the input ends."""
    watches: list[Any] = []
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for line in sys.stdin:
            try:
                answer = _answer(stub, watches, json.loads(line))
            except grpc.RpcError as error:
                answer = {"code": error.code().name, "details": error.details()}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        for watch in watches:
            watch.cancel()


def _answer(stub: Any, watches: list[Any], asked: dict[str, Any]) -> Any:
    if asked["do"] == "check":
        return _name(stub.Check(health_pb2.HealthCheckRequest(service=asked["service"]), timeout=S).status)
    if asked["do"] == "list":
        listed = stub.List(health_pb2.HealthListRequest(), timeout=S).statuses
        return {name: _name(each.status) for name, each in listed.items()}
    if asked["do"] == "watch":
        watches.append(stub.Watch(health_pb2.HealthCheckRequest(service=asked["service"]), timeout=S))
        return _name(next(watches[-1]).status)
    return _name(next(watches[asked["watch"]]).status)


def _name(status: int) -> str:
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(status))


if __name__ == "__main__":
    main(sys.argv[1])
