"""The guest kit's reading of functions: schemas, arguments, results. Nothing here needs a jail."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import pytest

from subako_ray.sandbox.guest import subako_function as kit

KIT = Path(kit.__file__)
SERVER = {"name": "test", "version": "0"}
META: dict[str, object] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Unit(Enum):
    METRE = "m"
    FOOT = "ft"


@dataclass
class Point:
    x: float
    y: float = 0.0
    tags: list[str] = field(default_factory=list)


class Options(TypedDict):
    depth: int
    label: NotRequired[str]


class Tree(TypedDict):
    children: list[Tree]


POINT = {
    "type": "object",
    "properties": {
        "x": {"type": "number"},
        "y": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["x"],
    "additionalProperties": False,
}


@pytest.fixture(autouse=True)
def _no_tools() -> Iterator[None]:
    kit.tools.clear()
    yield
    kit.tools.clear()


def ask(method: str, **params: object) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    answer = kit.answer(json.dumps(message).encode(), SERVER)
    assert answer is not None
    assert answer["id"] == 7
    return json.loads(kit.to_wire(answer))  # type: ignore[no-any-return]


def call(name: str, _meta: dict[str, object] | None = None, **arguments: object) -> dict[str, Any]:
    meta = {} if _meta is None else {"_meta": _meta}
    result = ask("tools/call", name=name, arguments=arguments, **meta)["result"]
    assert isinstance(result, dict)
    return result


def descriptor(function: Callable[..., object]) -> dict[str, Any]:
    kit.tool(function)
    (described,) = ask("tools/list")["result"]["tools"]
    assert isinstance(described, dict)
    return described


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (Any, {}),
        (object, {}),
        (list, {"type": "array"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict, {"type": "object"}),
        (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Unit, {"type": "string", "enum": ["m", "ft"]}),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (Point, POINT),
        (
            Options,
            {
                "type": "object",
                "properties": {"depth": {"type": "integer"}, "label": {"type": "string"}},
                "required": ["depth"],
                "additionalProperties": False,
            },
        ),
        (
            dict[str, list[Point | None]],
            {
                "type": "object",
                "additionalProperties": {
                    "type": "array",
                    "items": {"anyOf": [POINT, {"type": "null"}]},
                },
            },
        ),
    ],
    ids=str,
)
def test_a_type_becomes_its_schema(type_: object, expected: dict[str, object]) -> None:
    def measure(value: object) -> None: ...

    measure.__annotations__["value"] = type_
    assert descriptor(measure)["inputSchema"]["properties"]["value"] == expected


def test_a_documented_function_becomes_a_tool() -> None:
    def measure(
        point: Point,
        unit: Unit = Unit.METRE,
        *,
        note: str | None = None,
    ) -> Point:
        """Measures a point.

        Takes its time.

        Args:
            point: where to
                measure.
            unit (Unit): in which unit: metres, mostly.

        Returns:
            the point.
        """
        return point

    assert descriptor(measure) == {
        "name": "measure",
        "description": "Measures a point.\n\nTakes its time.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "point": {**POINT, "description": "where to measure."},
                "unit": {
                    "type": "string",
                    "enum": ["m", "ft"],
                    "description": "in which unit: metres, mostly.",
                    "default": "m",
                },
                "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            },
            "required": ["point"],
            "additionalProperties": False,
        },
        "outputSchema": POINT,
    }


def test_the_decorator_names_and_hints() -> None:
    @kit.tool(name="look", title="Look", description="Looks.", read_only=True, destructive=False)
    def examine() -> str:
        """Not shown."""
        return ""

    (described,) = ask("tools/list")["result"]["tools"]
    assert described == {
        "name": "look",
        "title": "Look",
        "description": "Looks.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
        "annotations": {"readOnlyHint": True, "destructiveHint": False},
    }
    assert examine() == ""


@pytest.mark.parametrize(
    ("type_", "reason"),
    [
        (bytes, "`bytes` has no JSON form"),
        (dict[int, str], "has no JSON form"),
        (Tree, "`Tree` holds itself"),
        (Literal[b"x"], "a choice is not JSON"),
    ],
)
def test_a_type_without_a_json_form_is_named(type_: object, reason: str) -> None:
    def measure(value: object) -> None: ...

    measure.__annotations__["value"] = type_
    kit.tool(measure)
    error = ask("tools/list")["error"]
    assert error["code"] == -32603
    assert error["message"].startswith("tool `measure`, parameter `value`: ")
    assert reason in error["message"]


def test_a_parameter_without_a_type_is_named() -> None:
    @kit.tool
    def measure(value): ...  # type: ignore[no-untyped-def]

    error = ask("tools/list")["error"]
    assert error["message"] == "tool `measure`, parameter `value`: it has no type"


def test_a_function_that_cannot_be_called_by_name_is_refused() -> None:
    with pytest.raises(TypeError, match="tool `measure` has parameters"):
        kit.tool(lambda *values: None, name="measure")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="has parameters"):

        @kit.tool
        def measure(value: int, /) -> None: ...


def test_two_tools_of_one_name_are_refused() -> None:
    kit.tool(name="measure")(lambda: None)
    with pytest.raises(ValueError, match="two tools are named `measure`"):
        kit.tool(name="measure")(lambda: None)


@pytest.mark.parametrize(
    ("type_", "given", "taken"),
    [
        (int, 10**40, 10**40),
        (int, 2.0, 2),
        (float, 2, 2.0),
        (Unit, "ft", Unit.FOOT),
        (Point, {"x": 1}, Point(x=1.0)),
        (list[Point], [{"x": 1, "y": 2}], [Point(x=1.0, y=2.0)]),
        (dict[str, Unit], {"a": "m"}, {"a": Unit.METRE}),
        (Options, {"depth": 1}, {"depth": 1}),
        (int | str | None, "x", "x"),
        (Any, {"a": [None]}, {"a": [None]}),
        (Annotated[Literal[1, 2], "n"], 2, 2),
    ],
)
def test_an_argument_arrives_as_its_type(type_: object, given: object, taken: object) -> None:
    received = []

    def measure(value: object) -> None:
        received.append(value)

    measure.__annotations__["value"] = type_
    kit.tool(measure)
    assert call("measure", value=given)["isError"] is False
    assert received == [taken]
    assert type(received[0]) is type(taken)


@pytest.mark.parametrize(
    ("type_", "given", "said"),
    [
        (int, True, 'the argument `value` does not match {"type": "integer"}'),
        (int, 1.5, "the argument `value` does not match"),
        (float, 10**400, "the argument `value` does not match"),
        (str, None, "the argument `value` does not match"),
        (list[int], [1, "2"], "the argument `value[1]` does not match"),
        (Point, {}, "the argument `value.x` is missing"),
        (Point, {"x": 1, "z": 1}, "there is no argument `value.z`"),
        (Literal[1, 2], True, "the argument `value` does not match"),
        (Unit, "inch", 'the argument `value` does not match {"type": "string", "enum"'),
        (int | None, "1", "the argument `value` does not match"),
    ],
)
def test_a_wrong_argument_is_an_error_for_the_model(
    type_: object, given: object, said: str
) -> None:
    def measure(value: object) -> None:
        raise AssertionError

    measure.__annotations__["value"] = type_
    kit.tool(measure)
    result = call("measure", value=given)
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith(said)


def test_missing_and_unknown_arguments_are_errors_for_the_model() -> None:
    @kit.tool
    def measure(value: int, unit: str = "m") -> None: ...

    assert call("measure")["content"][0]["text"] == "the argument `value` is missing"
    assert call("measure", value=1, x=1)["content"][0]["text"] == "there is no argument `x`"


@pytest.mark.parametrize(
    ("returned", "content", "structured"),
    [
        ("plain", [{"type": "text", "text": "plain"}], None),
        (None, [], None),
        ({"sum": 2**70}, [{"type": "text", "text": f'{{"sum": {2**70}}}'}], {"sum": 2**70}),
        (
            Point(x=1.5),
            [{"type": "text", "text": '{"x": 1.5, "y": 0.0, "tags": []}'}],
            {"x": 1.5, "y": 0.0, "tags": []},
        ),
        ([1, Unit.FOOT], [{"type": "text", "text": '[1, "ft"]'}], None),
        ("é\udc80\n", [{"type": "text", "text": "é?\n"}], None),
        ({"é": "\udc80"}, [{"type": "text", "text": '{"é": "?"}'}], {"é": "?"}),
        (
            kit.Content({"type": "image", "data": "AA==", "mimeType": "image/png"}),
            [{"type": "image", "data": "AA==", "mimeType": "image/png"}],
            None,
        ),
    ],
)
def test_a_result_becomes_content(returned: object, content: object, structured: object) -> None:
    kit.tool(name="measure")(lambda: returned)
    result = call("measure")
    assert result["content"] == content
    assert result.get("structuredContent") == structured
    assert result["isError"] is False


@pytest.mark.parametrize("returned", [{"x": float("nan")}, {"x": b""}, kit.Content({"x": set()})])
def test_a_result_that_is_not_json_is_an_error_for_the_model(returned: object) -> None:
    kit.tool(name="measure")(lambda: returned)
    assert call("measure")["isError"] is True


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (kit.ToolError("no such point"), "no such point"),
        (ValueError("too far"), "ValueError: too far"),
        (KeyError(), "KeyError"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_a_raised_exception_is_an_error_for_the_model(raised: BaseException, said: str) -> None:
    @kit.tool
    async def measure() -> str:
        raise raised

    result = call("measure")
    assert result == {"content": [{"type": "text", "text": said}], "isError": True}


def test_an_async_function_is_awaited() -> None:
    @kit.tool
    async def measure(value: int) -> dict[str, int]:
        return {"value": value}

    assert call("measure", value=3)["structuredContent"] == {"value": 3}


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tools/call", {"name": "nope"}, -32602),
        ("tools/call", {"name": ["x"]}, -32602),
        ("nope", {}, -32601),
        ("server/discover", {}, -32601),
        ("initialize", {"_meta": META}, -32601),
        ("ping", {"_meta": META}, -32601),
        ("tools/list", {"_meta": {**META, next(iter(META)): "2027-01-01"}}, -32022),
        ("tools/list", {"_meta": {next(iter(META)): "2026-07-28"}}, -32602),
        ("tools/list", {"_meta": 3}, -32602),
    ],
)
def test_a_wrong_request_is_answered_with_its_code(
    method: str, params: dict[str, object], code: int
) -> None:
    assert ask(method, **params)["error"]["code"] == code


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"rubbish", -32700),
        (b"{} {}", -32700),
        (b"", -32700),
        (b"\xff", -32700),
        (b'{"a":NaN}', -32700),
        (b"[" * 100_000, -32700),
        (b"[]", -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":3}', -32600),
    ],
)
def test_rubbish_is_answered_with_its_code(line: bytes, code: int) -> None:
    answer = kit.answer(line, SERVER)
    assert answer is not None
    error = answer["error"]
    assert isinstance(error, dict)
    assert error["code"] == code


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
    ],
)
def test_what_is_no_request_is_not_answered(line: bytes) -> None:
    assert kit.answer(line, SERVER) is None


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_the_handshake_agrees_to_a_known_version(version: str) -> None:
    assert ask("initialize", protocolVersion=version)["result"]["protocolVersion"] == version


def test_the_handshake_offers_the_newest_for_an_unknown_version() -> None:
    answer = ask("initialize", protocolVersion="2023-01-01")
    assert answer["result"]["protocolVersion"] == "2025-11-25"


def test_a_modern_result_is_complete_and_says_how_long_it_may_be_kept() -> None:
    kit.tool(name="measure")(lambda: "x")
    assert call("measure", _meta=META)["resultType"] == "complete"
    listed = ask("tools/list", _meta=META)["result"]
    assert (listed["resultType"], listed["ttlMs"], listed["cacheScope"]) == (
        "complete",
        0,
        "private",
    )
    assert ask("server/discover", _meta=META)["result"]["supportedVersions"] == ["2026-07-28"]


def test_the_kit_loads_nothing_that_is_slow() -> None:
    script = f"import sys; sys.path.insert(0, {str(KIT.parent)!r}); import subako_function\n"
    script += "print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-E", "-c", script], capture_output=True, text=True, check=True
    )
    slow = {"json", "re", "typing", "inspect", "dataclasses", "asyncio", "threading", "os", "enum"}
    loaded = set(done.stdout.split())
    assert "subako_function" in loaded
    assert not loaded & slow
