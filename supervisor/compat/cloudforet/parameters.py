"""Decorators of a service's methods that look at or change ``params``, under the names that services import."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import GeneratorType
from typing import Any, NoReturn, get_type_hints

from pydantic import BaseModel, ValidationError

from supervisor.compat.cloudforet.conversions import get_dict_value
from supervisor.compat.cloudforet.error import (
    ERROR_INVALID_PARAMETER,
    ERROR_INVALID_PARAMETER_TYPE,
    ERROR_REQUIRED_PARAMETER,
)

Method = Callable[..., Any]
Params = dict[str, Any]
Decorator = Callable[[Method], Method]
PAGE_LIMIT = 1000


def _before(change: Callable[[Params], None]) -> Decorator:
    """Return a decorator that has ``change`` look at ``params``, and change them, before the method is called."""

    def wrap(method: Method) -> Method:
        @functools.wraps(method)
        def called(self: Any, params: Params) -> Any:
            change(params)
            return method(self, params)

        return called

    return wrap


def check_required(keys: Sequence[str]) -> Decorator:
    """Have a method refuse parameters without one of ``keys``, which may be dotted."""

    def check(params: Params) -> None:
        for key in keys:
            if get_dict_value(params, key) is None:
                raise ERROR_REQUIRED_PARAMETER(key=key)

    return _before(check)


def append_query_filter(keys: Sequence[str]) -> Decorator:
    """Add a condition to ``params['query']['filter']`` for each of ``keys`` that is given: equal, or one of a list."""

    def change(params: Params) -> None:
        filters = params.setdefault("query", {}).setdefault("filter", [])
        for key in keys:
            if key in params:
                filters.append({"k": key, "v": params[key], "o": "in" if isinstance(params[key], list) else "eq"})

    return _before(change)


def append_keyword_filter(keywords: Sequence[str] = ()) -> Decorator:
    """Turn ``query.keyword`` into conditions of which one must hold: any of its words in any of these fields."""

    def change(params: Params) -> None:
        query = params.setdefault("query", {})
        words = str(query.pop("keyword", "")).split()
        if words:
            found = [{"k": key, "v": words, "o": "contain_in"} for key in keywords]
            query.setdefault("filter_or", []).extend(found)

    return _before(change)


def set_query_page_limit(limit: int) -> Decorator:
    """Have a query return at most ``limit`` results."""

    def change(params: Params) -> None:
        page = params.setdefault("query", {}).setdefault("page", {})
        page["limit"] = min(page.get("limit", PAGE_LIMIT), limit)

    return _before(change)


def change_value_by_rule(rule: str, param_key: str, value: Any = None) -> Decorator:
    """Change one parameter that is given; the only rule is ``APPEND``: make it a list with ``value`` at its end."""

    def change(params: Params) -> None:
        if rule == "APPEND" and param_key in params:
            given = params[param_key]
            params[param_key] = [*given, value] if isinstance(given, list) else [given, value]

    return _before(change)


def convert_model(method: Method) -> Method:
    """Make ``params`` the pydantic model that the method's annotation names, and its result a mapping.

    Raises:
        ERROR_REQUIRED_PARAMETER, ERROR_INVALID_PARAMETER_TYPE, ERROR_INVALID_PARAMETER: the parameters do not fit.
    """

    @functools.wraps(method)
    def called(self: Any, params: Any) -> Any:
        wanted = get_type_hints(method).get("params")
        if isinstance(wanted, type) and issubclass(wanted, BaseModel) and isinstance(params, Mapping):
            try:
                params = wanted.model_validate(dict(params))
            except ValidationError as error:
                _refuse(error)
        found = method(self, params)
        return (_plain(each) for each in found) if isinstance(found, GeneratorType) else _plain(found)

    return called


def _refuse(error: ValidationError) -> NoReturn:
    first = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        raise ERROR_REQUIRED_PARAMETER(key=key) from None
    if first["type"].endswith("_type"):
        raise ERROR_INVALID_PARAMETER_TYPE(key=key, type=first["type"].removesuffix("_type")) from None
    raise ERROR_INVALID_PARAMETER(key=key, reason=first["msg"]) from None


def _plain(found: Any) -> Any:
    return found.model_dump() if isinstance(found, BaseModel) else found
