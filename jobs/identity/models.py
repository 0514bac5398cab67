"""The tables. Every time is in milliseconds since 1970-01-01T00:00Z: one meaning in every database.

Invariants
    A domain's ``id`` is the upstream's and never changes; ``name`` is unique among all domains.
    ``vanished`` is set exactly while ``domain_sync`` holds a domain disabled because its source
    no longer lists it. DISABLED without it was somebody's decision, which no sync undoes.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, MetaData, String, Table, UniqueConstraint

ENABLED, DISABLED = "ENABLED", "DISABLED"
OK, FAILING, UNKNOWN = "OK", "FAILING", "UNKNOWN"

ID_CHARS = 64
NAME_CHARS = 200
TENANT_CHARS = 200
SOURCE_CHARS = 500
URL_CHARS = 1024
ERROR_CHARS = 200

metadata = MetaData()

_KEY = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows by itself only in an INTEGER key

domains = Table(
    "domains",
    metadata,
    Column("id", String(ID_CHARS), primary_key=True),
    # Room for "<name>~<id>", under which a vanished domain is kept when another took its name.
    Column("name", String(NAME_CHARS + 1 + ID_CHARS), nullable=False, unique=True),
    Column("tenant", String(TENANT_CHARS), nullable=False),
    Column("state", String(16), nullable=False),
    Column("source", String(SOURCE_CHARS), nullable=False),
    Column("first_seen", BigInteger, nullable=False),
    Column("last_seen", BigInteger, nullable=False),
    Column("vanished", BigInteger),
    Index("ix_domains_source", "source"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", _KEY, primary_key=True),
    Column("domain_id", String(ID_CHARS), ForeignKey("domains.id", ondelete="CASCADE"), nullable=False),
    Column("hash", String(128), nullable=False, unique=True),
    Column("created", BigInteger, nullable=False),
    Column("expires_at", BigInteger),  # null: never
    Index("ix_tokens_expires_at", "expires_at"),
    Index("ix_tokens_domain_id", "domain_id"),
)

endpoints = Table(
    "endpoints",
    metadata,
    Column("id", _KEY, primary_key=True),
    Column("domain_id", String(ID_CHARS), ForeignKey("domains.id", ondelete="CASCADE"), nullable=False),
    Column("url", String(URL_CHARS), nullable=False),
    Column("source", String(SOURCE_CHARS)),  # null: registered by hand, which no sync removes
    Column("state", String(16), nullable=False, server_default=UNKNOWN),
    Column("latency_ms", Integer),
    Column("last_checked", BigInteger),
    Column("last_status", Integer),
    Column("last_error", String(ERROR_CHARS)),
    Column("failures", Integer, nullable=False, server_default="0"),  # in a row
    UniqueConstraint("domain_id", "url", name="uq_endpoints_domain_id_url"),
    Index("ix_endpoints_last_checked", "last_checked"),
)
