"""Task messages: planning, execution, redaction."""
