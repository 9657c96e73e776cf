"""The guest kit: turns typed, documented functions into tools of a function package.

A package's program is this much::

    from subako_function import serve, tool

    @tool
    def add(a: int, b: int) -> dict[str, int]:
        "Adds two integers."
        return {"sum": a + b}

    serve()

One file of pure standard library, mounted read-only into the jail. It speaks MCP over stdio in
both eras: 2026-07-28, and 2024-11-05 to 2025-11-25 with their handshake.

A function call starts this file anew, so it must start fast. `json`, `os`, `re`, `typing` and
`inspect` each cost more than everything here: the C parts of `json` and `posix` are used
directly, and types are read by their attributes. Schemas are made for `tools/list` alone.
"""

import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn, TypeVar, overload

    Function = TypeVar("Function", bound=Callable[..., object])

__all__ = ["Content", "ToolError", "progress", "serve", "tool"]

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
META_VERSION = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META_SERVER = "io.modelcontextprotocol/serverInfo"

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
UNSUPPORTED_VERSION = -32022

COROUTINE_FLAG = 0x80
STAR_FLAGS = 0x0C


class ToolError(Exception):
    """What went wrong with a call, in words that the model reads."""


class Content:
    """A result made of MCP content blocks, for what is neither text nor JSON (images, audio)."""

    def __init__(self, *blocks: "dict[str, object]") -> None:
        self.blocks = list(blocks)


class RequestError(Exception):
    """A request that is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(code, message, data)
        self.code = code
        self.message = message
        self.data = data


class CallCancelledError(BaseException):
    """The client no longer wants the answer of the call that runs."""


def plain(value: object) -> object:
    """Turns a dataclass instance or an enum member into JSON; the encoder calls it for the rest."""
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is not None:
        return {name: getattr(value, name) for name in fields}
    if hasattr(type(value), "__members__") and hasattr(value, "value"):
        return value.value
    raise TypeError(f"a value of type `{type(value).__name__}` is not JSON")


class ScannerSettings:
    """What the C scanner reads from a `json.JSONDecoder`."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int

    @staticmethod
    def parse_constant(name: str) -> "NoReturn":
        """Refuses `NaN` and `Infinity`, which are not JSON."""
        raise ValueError(f"`{name}` is not JSON")


def codec() -> "tuple[Callable[[str], Any], Callable[[object], str], Callable[[object], str]]":
    """Returns a reader, a writer of ASCII for the wire, and a writer for models and people.

    `_json` is not documented, so any surprise in it falls back to `json`.
    """
    try:
        import _json

        make_scanner: Any = _json.make_scanner
        scan = make_scanner(ScannerSettings())
        make: Any = _json.make_encoder
        ascii_, any_ = _json.encode_basestring_ascii, _json.encode_basestring
        compact = make(None, plain, ascii_, None, ":", ",", False, False, False)
        spaced = make(None, plain, any_, None, ": ", ", ", False, False, False)

        def read(text: str) -> object:
            text = text.strip(" \t\r\n")
            try:
                value, end = scan(text, 0)
            except StopIteration:
                raise ValueError("not JSON") from None
            if end != len(text):
                raise ValueError("more than one JSON value")
            return value

        def wire(value: object) -> str:
            return "".join(compact(value, 0))

        if wire(read('{"a": [1.5, "\\u00e9"]}')) == '{"a":[1.5,"\\u00e9"]}':
            return read, wire, lambda value: "".join(spaced(value, 0))
    except (ImportError, AttributeError, TypeError, ValueError):
        pass
    import json

    options: Any = {"default": plain, "allow_nan": False}
    return (
        json.JSONDecoder(parse_constant=ScannerSettings.parse_constant).decode,
        json.JSONEncoder(separators=(",", ":"), **options).encode,
        json.JSONEncoder(ensure_ascii=False, **options).encode,
    )


from_json, to_wire, to_text = codec()


SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def resolved(annotation: "Any", module: str) -> "Any":
    """Evaluates an annotation that is still text, in the module that wrote it."""
    text = getattr(annotation, "__forward_arg__", annotation)
    if isinstance(text, str):
        # The text is the package's own source code; `typing.get_type_hints` does the same.
        return resolved(eval(text, vars(sys.modules[module])), module)  # noqa: S307
    return annotation


def form(annotation: "Any") -> "tuple[str, Any]":
    """Says what shape of JSON a type means, without importing `typing`.

    Returns:
        A kind and its detail: a scalar's JSON name; `any`; `list` and `dict` with the type of
        their items; `union` and `literal` with their members; `enum` and `record` with the class;
        `annotated` with type and remarks; `required` and `optional`, keys of a `TypedDict`, with
        their type; `unknown` for all else.
    """
    members: Any = getattr(annotation, "__args__", ())
    origin = getattr(annotation, "__origin__", None)
    name = getattr(origin, "_name", None) or getattr(origin, "__name__", None)
    if annotation is None:
        return "null", None
    if hasattr(annotation, "__metadata__"):
        return "annotated", (origin, annotation.__metadata__)
    if name in ("Required", "NotRequired"):
        return ("required" if name == "Required" else "optional"), members[0]
    if name == "Literal":
        return "literal", members
    if name == "Union" or type(annotation).__name__ == "UnionType":
        return "union", members
    if list in (origin, annotation):
        return "list", members[0] if members else object
    if dict in (origin, annotation) and (not members or members[0] is str):
        return "dict", members[1] if members else object
    if annotation is object or getattr(annotation, "__name__", None) == "Any":
        return "any", None
    if isinstance(annotation, type):
        if annotation in SCALARS:
            return SCALARS[annotation], None
        if hasattr(annotation, "__members__"):
            return "enum", annotation
        if hasattr(annotation, "__dataclass_fields__") or hasattr(annotation, "__required_keys__"):
            return "record", annotation
    return "unknown", None


def record(annotation: "Any") -> "Iterator[tuple[str, Any, bool]]":
    """Yields name, type and whether it must be there, per field of a dataclass or TypedDict."""
    module = annotation.__module__
    fields = getattr(annotation, "__dataclass_fields__", None)
    if fields is not None:
        missing = sys.modules["dataclasses"].MISSING
        for field in fields.values():
            if not field.init:
                raise TypeError(f"the field `{field.name}` of `{annotation.__name__}` is not given")
            required = field.default is missing and field.default_factory is missing
            yield field.name, resolved(field.type, module), required
        return
    for name, raw in annotation.__annotations__.items():
        type_ = resolved(raw, module)
        kind, inner = form(type_)
        if kind in ("required", "optional"):
            yield name, inner, kind == "required"
        else:
            yield name, type_, name in annotation.__required_keys__


def fit(value: "Any", annotation: "Any", module: str, place: str) -> object:
    """Turns a JSON value of a call's arguments into a value of the type.

    Raises:
        ToolError: when it does not fit; the text names the place.
    """
    annotation = resolved(annotation, module)
    kind, detail = form(annotation)
    if kind == "annotated":
        return fit(value, detail[0], module, place)
    if kind in ("any", "unknown") or SCALARS.get(type(value)) == kind:
        return value
    if kind == "number" and type(value) is int and -(2**1023) < value < 2**1023:
        return float(value)
    if kind == "integer" and type(value) is float and value.is_integer():
        return int(value)  # JSON Schema: 1.0 is an integer
    if kind == "list" and type(value) is list:
        return [fit(item, detail, module, f"{place}[{i}]") for i, item in enumerate(value)]
    if kind == "dict" and type(value) is dict:
        return {key: fit(item, detail, module, f"{place}.{key}") for key, item in value.items()}
    if kind == "record" and type(value) is dict:
        fields = list(record(annotation))
        types = {name: type_ for name, type_, _ in fields}
        check_names(value, types, [name for name, _, required in fields if required], place + ".")
        home = annotation.__module__
        return annotation(
            **{
                name: fit(item, types[name], home, f"{place}.{name}")
                for name, item in value.items()
            }
        )
    if kind in ("literal", "enum"):
        for member in detail:
            known = member if kind == "literal" else member.value
            if value == known and type(value) is type(known):
                return member
    if kind == "union":
        for member in detail:
            try:
                return fit(value, member, module, place)
            except ToolError:
                continue
    raise ToolError(f"the argument `{place}` does not match {to_text(schema(annotation, module))}")


def check_names(given: "Any", known: "Any", required: "list[str]", place: str = "") -> None:
    """Raises a `ToolError` when an argument is missing or not known."""
    for name in required:
        if name not in given:
            raise ToolError(f"the argument `{place}{name}` is missing")
    for name in given:
        if name not in known:
            raise ToolError(f"there is no argument `{place}{name}`")


def schema(annotation: "Any", module: str, within: "tuple[object, ...]" = ()) -> "dict[str, Any]":
    """Writes the JSON Schema of a type.

    Raises:
        TypeError: when the type has no JSON form.
    """
    annotation = resolved(annotation, module)
    kind, detail = form(annotation)
    if kind == "any":
        return {}
    if kind == "annotated":
        inner = schema(detail[0], module, within)
        remarks = [remark for remark in detail[1] if isinstance(remark, str)]
        return {**inner, "description": remarks[0]} if remarks else inner
    if kind == "union":
        return {"anyOf": [schema(member, module, within) for member in detail]}
    if kind in ("literal", "enum"):
        values = [member if kind == "literal" else member.value for member in detail]
        kinds = {SCALARS.get(type(value)) for value in values}
        if None in kinds:
            raise TypeError("a choice is not JSON")
        return {"type": kinds.pop(), "enum": values} if len(kinds) == 1 else {"enum": values}
    if kind == "list":
        items = schema(detail, module, within)
        return {"type": "array", "items": items} if items else {"type": "array"}
    if kind == "dict":
        items = schema(detail, module, within)
        return {"type": "object", "additionalProperties": items} if items else {"type": "object"}
    if kind == "record":
        if annotation in within:
            raise TypeError(f"`{annotation.__name__}` holds itself")
        properties: dict[str, Any] = {}
        required = []
        for name, type_, is_required in record(annotation):
            properties[name] = schema(type_, annotation.__module__, (*within, annotation))
            required += [name] if is_required else []
        return object_schema(properties, required)
    if kind == "unknown":
        raise TypeError(f"`{getattr(annotation, '__name__', annotation)}` has no JSON form")
    return {"type": kind}


def object_schema(properties: "dict[str, Any]", required: "list[str]") -> "dict[str, Any]":
    """Writes the schema of an object with these properties and no others."""
    needed = {"required": required} if required else {}
    return {"type": "object", "properties": properties, **needed, "additionalProperties": False}


SECTIONS = ("Args:", "Arguments:", "Returns:", "Yields:", "Raises:", "Example:", "Examples:")


def documentation(function: "Any") -> "tuple[str, dict[str, str]]":
    """Reads a Google-style docstring: its text before the first section, and its `Args:`."""
    lines = (function.__doc__ or "").expandtabs().splitlines()
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    lines = [line.strip() if n == 0 else line[margin:].rstrip() for n, line in enumerate(lines)]
    text: list[str] = []
    parameters: dict[str, str] = {}
    section, name, margin = "", "", 0
    for line in lines:
        if line in SECTIONS:
            section, name, margin = line, "", 0
        elif not section:
            text.append(line)
        elif section in SECTIONS[:2] and line:
            depth = len(line) - len(line.lstrip())
            margin = margin or depth
            head, colon, rest = line.partition(":")
            if colon and depth <= margin:
                name = head.split("(")[0].strip()
                parameters[name] = rest.strip()
            elif name:
                parameters[name] = f"{parameters[name]} {line.strip()}".strip()
    return "\n".join(text).strip(), parameters


class Tool:
    """One function offered as a tool; its parameters are read without `inspect`."""

    def __init__(self, function: "Any", name: str, texts: "dict[str, str]", hints: "Any") -> None:
        inner = function
        while hasattr(inner, "__wrapped__"):
            inner = inner.__wrapped__
        code = getattr(inner, "__code__", None)
        if code is None or type(inner).__name__ != "function":
            raise TypeError(f"tool `{name}` is not a function")
        if code.co_posonlyargcount or code.co_flags & STAR_FLAGS:
            raise TypeError(f"tool `{name}` has parameters that cannot be given by name")
        self.function = function
        self.inner = inner
        self.module = inner.__module__
        self.name = name
        self.texts = texts
        self.hints = hints
        self.is_coroutine = bool(code.co_flags & COROUTINE_FLAG)
        count = code.co_argcount
        self.parameters = code.co_varnames[: count + code.co_kwonlyargcount]
        positional = inner.__defaults__ or ()
        self.defaults = dict(zip(self.parameters[count - len(positional) :], positional))  # noqa: B905
        self.defaults.update(inner.__kwdefaults__ or {})
        self.required = [name for name in self.parameters if name not in self.defaults]

    def type_of(self, parameter: str) -> "Any":
        """Returns the type of a parameter.

        Raises:
            TypeError: when it has none.
        """
        if parameter not in self.inner.__annotations__:
            raise TypeError("it has no type")
        return self.inner.__annotations__[parameter]

    def descriptor(self) -> "dict[str, object]":
        """Writes what `tools/list` says about this tool.

        Raises:
            TypeError: naming the tool and the parameter whose type has no JSON form.
        """
        text, remarks = documentation(self.inner)
        properties: dict[str, Any] = {}
        place = ""
        try:
            for name in self.parameters:
                place = f", parameter `{name}`"
                properties[name] = schema(self.type_of(name), self.module)
                if name in remarks:
                    properties[name]["description"] = remarks[name]
                if name in self.defaults:
                    properties[name]["default"] = from_json(to_wire(self.defaults[name]))
            place = ", result"
            returned = resolved(self.inner.__annotations__.get("return"), self.module)
            output = None
            if form(returned)[0] in ("dict", "record"):
                output = schema(returned, self.module)
        except (TypeError, ValueError, NameError, AttributeError) as error:
            raise TypeError(f"tool `{self.name}`{place}: {error}") from error
        described: dict[str, object] = {"name": self.name}
        described.update({"description": text} if text else {})
        described.update(self.texts)
        described["inputSchema"] = object_schema(properties, self.required)
        described.update({"outputSchema": output} if output else {})
        described.update({"annotations": self.hints} if self.hints else {})
        return described

    def run(self, given: "dict[str, Any]") -> object:
        """Calls the function with JSON arguments.

        Raises:
            ToolError: when the arguments do not fit, or the function says so.
        """
        check_names(given, self.parameters, self.required)
        arguments = {
            name: fit(value, self.type_of(name), self.module, name) for name, value in given.items()
        }
        result = self.function(**arguments)
        if self.is_coroutine:
            import asyncio  # only a tool that needs it pays for it

            result = asyncio.run(result)
        return result


tools: "dict[str, Tool]" = {}

if TYPE_CHECKING:

    @overload
    def tool(function: Function, /) -> Function: ...
    @overload
    def tool(
        *,
        name: str | None = ...,
        title: str | None = ...,
        description: str | None = ...,
        read_only: bool | None = ...,
        destructive: bool | None = ...,
        idempotent: bool | None = ...,
        open_world: bool | None = ...,
    ) -> Callable[[Function], Function]: ...


def tool(
    function: "Any" = None,
    /,
    *,
    name: "str | None" = None,
    title: "str | None" = None,
    description: "str | None" = None,
    read_only: "bool | None" = None,
    destructive: "bool | None" = None,
    idempotent: "bool | None" = None,
    open_world: "bool | None" = None,
) -> "Any":
    """Makes a function a tool; used as `@tool` or `@tool(read_only=True)`.

    Args:
        function: the function; its parameters and their types become the input schema.
        name: the tool's name, if not the function's.
        title: a name for people.
        description: what the tool does, if not the docstring's text.
        read_only: it changes nothing.
        destructive: it may delete or overwrite.
        idempotent: a second call with the same arguments changes nothing more.
        open_world: it reaches beyond this package.

    Raises:
        TypeError: when it cannot be called with arguments by name.
        ValueError: when the name is taken.
    """
    hints = {
        "readOnlyHint": read_only,
        "destructiveHint": destructive,
        "idempotentHint": idempotent,
        "openWorldHint": open_world,
    }

    def register(function: "Any") -> "Any":
        given = name or function.__name__
        if given in tools:
            raise ValueError(f"two tools are named `{given}`")
        texts = {"title": title, "description": description}
        tools[given] = Tool(
            function,
            given,
            {key: text for key, text in texts.items() if text is not None},
            {key: hint for key, hint in hints.items() if hint is not None},
        )
        return function

    return register if function is None else register(function)


class Wire:
    """The client's pipes, moved out of the way of `print` and `input`."""

    def __init__(self) -> None:
        self.input = posix.dup(0)
        self.output = posix.dup(1)
        posix.dup2(posix.open("/dev/null", posix.O_RDONLY), 0)
        posix.dup2(2, 1)
        sys.stdout = sys.stderr
        self.lines: list[bytes] = []
        self.rest: list[bytes] = []
        self.ended = False

    def fill(self) -> None:
        """Reads once, and cuts what came into lines."""
        chunk = posix.read(self.input, 262_144)
        self.ended = not chunk
        first, *others = chunk.split(b"\n")
        self.rest.append(first)
        if others:
            self.lines.append(b"".join(self.rest))
            self.lines += others[:-1]
            self.rest = [others[-1]]

    def line(self) -> "bytes | None":
        """Returns the next line, or None when the client has closed the pipe."""
        while not self.lines:
            if self.ended:
                return None
            self.fill()
        return self.lines.pop(0)

    def send(self, message: "dict[str, object]") -> None:
        """Writes one message: ASCII, so that it holds neither a newline nor a lone surrogate."""
        data = to_wire({"jsonrpc": "2.0", **message}).encode() + b"\n"
        while data:
            data = data[posix.write(self.output, data) :]

    def is_cancelled(self, request: object) -> bool:
        """Says whether the client has by now cancelled the request."""
        import select

        while not self.ended and select.select([self.input], [], [], 0)[0]:
            self.fill()
        for line in self.lines:
            if b'"notifications/cancelled"' in line:
                try:
                    if from_json(line.decode())["params"]["requestId"] == request:
                        return True
                except (ValueError, LookupError, TypeError):
                    continue
        return False


# In a jail the wire is taken at once: what the package prints while it loads must not reach it.
wire = Wire() if b"SUBAKO_FUNCTION" in posix.environ else None
running: "tuple[object, object] | None" = None  # request id and progress token of the call


def progress(done: float, total: "float | None" = None, message: "str | None" = None) -> None:
    """Tells the client how far the running call is; ends the call if it has been cancelled.

    Args:
        done: how much is done; must grow with each report.
        total: how much there is to do, if known.
        message: what is being done, for people.
    """
    if wire is None or running is None:
        return
    request, token = running
    if wire.is_cancelled(request):
        raise CallCancelledError
    if token is not None:
        report = {"progressToken": token, "progress": done, "total": total, "message": message}
        report = {key: value for key, value in report.items() if value is not None}
        wire.send({"method": "notifications/progress", "params": report})


def outcome(tool: Tool, arguments: "dict[str, Any]") -> "dict[str, object]":
    """Runs a tool and writes its end as a call result, whatever the end is."""
    try:
        value = tool.run(arguments)
        if isinstance(value, Content):
            to_wire(value.blocks)
            return {"content": value.blocks, "isError": False}
        text = value if isinstance(value, str) else to_text(value)
        result: dict[str, object] = {"content": [text_block(text)], "isError": False}
        if value is None:
            result["content"] = []
        elif isinstance(value, dict) or hasattr(type(value), "__dataclass_fields__"):
            result["structuredContent"] = from_json(clean(text))
        return result
    except ToolError as error:
        text = str(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001
        import traceback

        traceback.print_exc()
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
    return {"content": [text_block(text)], "isError": True}


def clean(text: str) -> str:
    """Replaces lone surrogates (file names can hold them), which are not Unicode text."""
    return text.encode("utf-8", "replace").decode()


def text_block(text: str) -> "dict[str, object]":
    """Writes an MCP content block of text."""
    return {"type": "text", "text": clean(text)}


def respond(method: str, params: "dict[str, Any]", request: object, server: "Any") -> object:
    """Returns the result of one request.

    Raises:
        RequestError: when it is answered with an error.
    """
    global running
    meta = params.get("_meta") or {}
    version = meta.get(META_VERSION)
    modern = version is not None
    if modern and version != MODERN:
        supported = {"supported": [MODERN], "requested": version}
        raise RequestError(UNSUPPORTED_VERSION, "Unsupported protocol version", supported)
    if modern and not isinstance(meta.get(META_CAPABILITIES), dict):
        raise RequestError(INVALID_PARAMS, f"Missing {META_CAPABILITIES}")
    result: dict[str, Any]
    if method == "tools/call":
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or name not in tools:
            raise RequestError(INVALID_PARAMS, f"Unknown tool: {name}")
        if not isinstance(arguments, dict | None):
            raise RequestError(INVALID_PARAMS, "The arguments are not an object")
        running = (request, meta.get("progressToken"))
        try:
            result = outcome(tools[name], arguments or {})
        finally:
            running = None
    elif method == "tools/list":
        result = {"tools": [tool.descriptor() for tool in tools.values()]}
    elif method == "server/discover" and modern:
        result = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}
    elif method == "initialize" and not modern:
        wanted = params.get("protocolVersion")
        return {
            "protocolVersion": wanted if wanted in LEGACY else LEGACY[0],
            "capabilities": {"tools": {}},
            "serverInfo": server,
        }
    elif method == "ping" and not modern:
        return {}
    else:
        raise RequestError(METHOD_NOT_FOUND, f"Method not found: {method}")
    if modern:
        result.update({"resultType": "complete", "_meta": {META_SERVER: server}})
        if method != "tools/call":
            result.update({"ttlMs": 0, "cacheScope": "private"})
    return result


def answer(line: bytes, server: "dict[str, str]") -> "dict[str, object] | None":
    """Returns the response to one line of the client, or None when it gets none."""
    request: object = None
    try:
        try:
            message = from_json(line.decode())
        except (ValueError, RecursionError):
            raise RequestError(PARSE_ERROR, "Parse error") from None
        if not isinstance(message, dict):
            raise RequestError(INVALID_REQUEST, "Not a request")
        if "id" not in message or "result" in message or "error" in message:
            return None
        method, params = message.get("method"), message.get("params", {})
        if not isinstance(message["id"], str | int) or not isinstance(method, str):
            raise RequestError(INVALID_REQUEST, "Not a request")
        request = message["id"]
        if not isinstance(params, dict) or not isinstance(params.get("_meta", {}), dict):
            raise RequestError(INVALID_PARAMS, "The parameters are not an object")
        return {"id": request, "result": respond(method, params, request, server)}
    except CallCancelledError:
        return None
    except RequestError as error:
        data = {} if error.data is None else {"data": error.data}
        return {"id": request, "error": {"code": error.code, "message": error.message, **data}}
    except Exception as error:  # noqa: BLE001
        return {"id": request, "error": {"code": INTERNAL_ERROR, "message": str(error)}}


def serve(name: str = "function", version: str = "0") -> None:
    """Answers the client on standard input and output until it closes the pipe.

    Args:
        name: the server's name as clients see it.
        version: its version as clients see it.
    """
    global wire
    if wire is None:
        wire = Wire()
    server = {"name": name, "version": version}
    while (line := wire.line()) is not None:
        if not line.strip():
            continue
        response = answer(line, server)
        if response is not None:
            try:
                wire.send(response)
            except BrokenPipeError:
                return
