"""Authentication, host names and TLS of the HTTP endpoint."""
