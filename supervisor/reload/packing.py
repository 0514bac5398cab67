"""Settings as bytes that processes of one tree hand each other: data alone, so that reading them runs nothing.

Guarantees
    Unpacked data equal the packed ones, secrets that the audience is given included, and were validated anew.
    Of every other secret there is a mask.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path as FilePath
from typing import Any

import msgspec
from pydantic import SecretStr

from supervisor.reload.audiences import Audience, is_withheld
from supervisor.settings.base import Origins, Path, Section, key_of
from supervisor.settings.interpolate import FOLLOWED, FollowedSecret
from supervisor.settings.masking import MASK
from supervisor.settings.schedules.settings import ScheduleSettings
from supervisor.settings.sections.models import Settings


class _Packed(msgspec.Struct, frozen=True):
    values: dict[str, Any]
    references: list[tuple[tuple[str | int, ...], str]]
    deprecated: int
    origins: dict[str, str]
    origins_left_out: int
    followed: dict[str, tuple[str, str]]


_decode = msgspec.msgpack.Decoder(_Packed).decode


def pack(settings: Settings, audience: Audience) -> bytes:
    """Return ``settings`` without their schedules, for one audience."""
    references = settings.references
    bare = {name: settings.__dict__[name] for name in settings.model_fields_set - {"schedules"}}
    packed = _Packed(
        values={name: _plain(value, (name,), references, audience) for name, value in bare.items()},
        references=list(references.items()),
        deprecated=settings.deprecated,
        origins=dict(settings.origins.by_path),
        origins_left_out=settings.origins.left_out,
        followed=_followed(settings, audience),
    )
    return msgspec.msgpack.encode(packed)


def unpack(data: bytes) -> Settings:
    """Return the settings that ``pack`` packed, without schedules.

    Raises:
        msgspec.DecodeError: it is not their form.
        pydantic.ValidationError: no settings have such values.
    """
    packed = _decode(data)
    settings = Settings.model_validate(packed.values)
    origins = Origins(packed.origins, left_out=packed.origins_left_out)
    settings = settings.with_references(dict(packed.references), deprecated=packed.deprecated, origins=origins)
    found = {
        name: FollowedSecret(getattr(settings.redis, name).get_secret_value(), text=text, base=FilePath(base))
        for name, (text, base) in packed.followed.items()
    }
    return settings.model_copy(update={"redis": settings.redis.model_copy(update=found)}) if found else settings


def pack_schedules(schedules: Mapping[str, ScheduleSettings]) -> bytes:
    """Return schedules by id; see ``unpack_schedules``."""
    return msgspec.msgpack.encode(
        {name: _plain(schedule, (), {}, Audience.CHECK) for name, schedule in schedules.items()}
    )


def unpack_schedules(data: bytes) -> dict[str, ScheduleSettings]:
    """Return the schedules that ``pack_schedules`` packed. Raises like ``unpack``."""
    return {
        name: ScheduleSettings.model_validate(each) for name, each in msgspec.msgpack.decode(data, type=dict).items()
    }


def _plain(value: Any, path: Path, references: Mapping[Path, str], audience: Audience) -> Any:
    if is_withheld(path, value, is_reference=path in references, audience=audience):
        return MASK
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, Section):
        return {
            name: _plain(value.__dict__[name], (*path, key_of(name)), references, audience)
            for name in value.model_fields_set
        }
    if isinstance(value, dict):
        return {key: _plain(each, (*path, key), references, audience) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, (*path, index), references, audience) for index, each in enumerate(value)]
    return value.value if isinstance(value, Enum) else value


def _followed(settings: Settings, audience: Audience) -> dict[str, tuple[str, str]]:
    found = {}
    for name in FOLLOWED:
        secret = getattr(settings.redis, name)
        if not isinstance(secret, FollowedSecret):
            continue
        if not is_withheld(("redis", name), secret, is_reference=True, audience=audience):
            text, base = secret.named
            found[name] = (text, str(base))
    return found
