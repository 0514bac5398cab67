"""grpc.health.v1.Health beside HTTP."""
