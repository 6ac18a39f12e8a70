"""Strict pydantic models and YAML: an unknown key or a wrong type is one line naming file, key and fix."""

import re
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from sage.errors import UserError, nearest


class Strict(BaseModel):
    """A frozen model that converts nothing silently and names the nearest known key for an unknown one."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                if key not in cls.model_fields:
                    hint = nearest(str(key), list(cls.model_fields))
                    raise PydanticCustomError("unknown_key", "unknown key '{key}'{hint}", {"key": key, "hint": hint})
        return data


Model = TypeVar("Model", bound=Strict)


class _Loader(yaml.SafeLoader):
    """YAML 1.2 floats (``3e-4`` is a number, which PyYAML's 1.1 reads as text) and no duplicate keys."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$"),
    list("-+0123456789."),
)


def _construct_mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
    twice = next((key for i, key in enumerate(keys) if key in keys[:i]), None)
    if twice is not None:
        raise yaml.constructor.ConstructorError(None, None, f"key '{twice}' appears twice", node.start_mark)
    return dict(loader.construct_pairs(node, deep=True))


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file; a missing or malformed one is a :class:`UserError` with its line."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; name an existing config file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{path}{line}: not valid YAML: {error.problem}") from None


def validate(model: type[Model], data: Any, where: str) -> Model:
    """Return ``data`` as ``model``; the first fault is a :class:`UserError` starting with ``where``."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        # a part in angle brackets is the tag of one kind of an entry, which no file has
        key = ".".join(str(part) for part in first["loc"] if not str(part).startswith("<"))
        got = first.get("input")
        value = f" (got {got!r})" if not isinstance(got, dict | list) and first["type"] != "missing" else ""
        message = first["msg"].removeprefix("Value error, ")
        raise UserError(f"{where}: {key + ': ' if key else ''}{message}{value}") from None
