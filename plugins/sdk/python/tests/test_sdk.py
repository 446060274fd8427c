"""What the SDK makes of type hints, results and exceptions."""

import asyncio
import dataclasses
import enum
import json
import sys
import sysconfig
import tempfile
import unittest
import unittest.mock
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal, Optional

from bulkhead_plugin import Field, InvalidParams, Message, NotFound, Output, ToolError, ask, call, config, http, kv, task, testing, tool
from bulkhead_plugin import _host, _late, _offers, _schema, _snapshot, _tool, _urllib, app, complete, prompt, resource
from bulkhead_plugin.errors import InternalError


class Class(enum.Enum):
    ECONOMY = "economy"
    BUSINESS = "business"


class Level(enum.Enum):
    LOW = 1


@dataclass
class Trip:
    city: Annotated[str, "Where to.", Field(min_length=1)]
    travellers: Annotated[int, Field(minimum=1, maximum=9)] = 1
    seat: Class | None = None
    note: Optional[str] = None


@dataclass
class Tree:
    children: list["Tree"]


class Schemas(unittest.TestCase):
    def test_a_dataclass_is_a_closed_object(self) -> None:
        self.assertEqual(
            _schema.of(Trip),
            {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Where to.", "minLength": 1},
                    "travellers": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
                    "seat": {"type": ["string", "null"], "enum": ["economy", "business", None]},
                    "note": {"type": ["string", "null"]},
                },
                "required": ["city"],
                "additionalProperties": False,
            },
        )

    def test_every_object_has_properties(self) -> None:
        @dataclass
        class Nothing:
            pass

        for hint, others in [(Nothing, False), (dict[str, int], {"type": "integer"}), (dict[str, Any], {})]:
            self.assertEqual(_schema.of(hint), {"type": "object", "properties": {}, "additionalProperties": others})
        self.assertEqual(_schema.of(dict), {"type": "object", "properties": {}})
        self.assertEqual(_schema.of_form(Nothing), {"type": "object", "properties": {}})
        self.assertEqual(_schema.of_object({}), {"type": "object", "properties": {}, "additionalProperties": False})

    def test_a_form_has_primitive_fields_that_are_never_null(self) -> None:
        form = _schema.of_form(Trip)
        self.assertEqual(form["properties"]["note"], {"type": "string"})
        self.assertEqual(form["properties"]["seat"], {"type": "string", "enum": ["economy", "business"]})
        self.assertNotIn("additionalProperties", form)

        @dataclass
        class Nested:
            trip: Trip

        with self.assertRaises(TypeError):
            _schema.of_form(Nested)

    def test_what_has_no_schema_is_refused_by_name(self) -> None:
        for hint, word in [(Tree, "itself"), (object, "no JSON Schema"), (dict[int, str], "no JSON Schema")]:
            with self.assertRaisesRegex(TypeError, word):
                _schema.of(hint)

    def test_values_come_back_as_they_went(self) -> None:
        @dataclass
        class All:
            trip: Trip
            days: list[date]
            shares: dict[str, float]
            mode: Literal["a", "b"] | int
            free: Any

        value = All(Trip("Oslo", 2, Class.BUSINESS), [date(2026, 2, 3)], {"x": 1.5}, 7, [None])
        self.assertEqual(_schema.decode(All, _schema.encode(value), ""), value)

    def test_a_wrong_value_is_named_by_its_place(self) -> None:
        for value, words in [
            ({}, "city is missing"),
            ({"city": "x", "travellers": "two"}, "/travellers: is not an integer"),
            ({"city": "x", "travellers": True}, "/travellers: is not an integer"),
            ({"city": "x", "sea": 1}, "there is no sea"),
            ({"city": "x", "seat": "roof"}, "/seat"),
        ]:
            with self.assertRaisesRegex(ValueError, words):
                _schema.decode(Trip, value, "")


class Tools(unittest.TestCase):
    def setUp(self) -> None:
        self.addCleanup(_tool.TOOLS.clear)

    def test_results_are_what_the_function_returns(self) -> None:
        @tool(idempotent=True)
        def trip(city: str) -> Trip:
            """Plans."""
            return Trip(city)

        @tool
        def shout(text: str, times: int = 1) -> str:
            """Shouts."""
            return text.upper() * times

        self.assertEqual(_tool.TOOLS["trip"].output_schema, _schema.of(Trip))
        self.assertIsNone(_tool.TOOLS["shout"].output_schema)
        output = _tool.run("trip", '{"city": "Oslo"}')
        self.assertEqual(output.structured_json, '{"city": "Oslo", "travellers": 1, "seat": null, "note": null}')
        self.assertEqual(_tool.run("shout", '{"text": "a", "times": 2}').blocks[0].fields, {"text": "AA"})
        self.assertEqual(shout("b"), "B")

    def test_a_result_that_is_no_object_stands_in_one(self) -> None:
        numbers = {"type": "array", "items": {"type": "integer"}}
        for hint, value, schema, text in [
            (int, 3, {"type": "integer"}, "3"),
            (float, 2, {"type": "number"}, "2"),
            (bool, True, {"type": "boolean"}, "true"),
            (int | None, None, {"type": ["integer", "null"]}, "null"),
            (int | list[int], [1], {"anyOf": [{"type": "integer"}, numbers]}, "[1]"),
            (list[int], (1, 2), numbers, "[1, 2]"),
            (list[str], ["é"], {"type": "array", "items": {"type": "string"}}, '["é"]'),
            (list[dict[str, Any]], [{}], {"type": "array", "items": {"type": "object", "properties": {}, "additionalProperties": {}}}, "[{}]"),
            (list[Trip], [], {"type": "array", "items": _schema.of(Trip)}, "[]"),
            (Literal[1, 2], 2, {"enum": [1, 2]}, "2"),
            (Level, Level.LOW, {"enum": [1]}, "1"),
            (Annotated[int, "How many."], 3, {"type": "integer", "description": "How many."}, "3"),
        ]:
            output = self.result(hint, value)
            self.assertEqual(
                _tool.TOOLS["t"].output_schema,
                {"type": "object", "properties": {"result": schema}, "required": ["result"], "additionalProperties": False},
                hint,
            )
            self.assertEqual((output.structured_json, output.blocks[0].fields["text"]), (f'{{"result": {text}}}', text))
            self.assertEqual(len(output.blocks), 1)

    def test_other_results_are_texts_or_objects_as_they_are(self) -> None:
        shares = {"type": "object", "properties": {}, "additionalProperties": {"type": "number"}}
        for hint, value, schema, structured in [
            (str, "a", None, None),
            (str | None, None, None, None),
            (int | str, 3, None, None),
            (Literal["a"], "a", None, None),
            (date, date(2026, 2, 3), None, None),
            (None, None, None, None),
            (Any, [1], None, None),
            (Any, {"n": 1}, None, '{"n": 1}'),
            (list, [1], None, None),
            (dict, {"n": 1}, None, '{"n": 1}'),
            (dict[str, float], {"n": 1}, shares, '{"n": 1}'),
            (dict[str, float] | None, {"n": 1}, None, '{"n": 1}'),
            (int | dict[str, float], 3, None, None),
            (Output, Output().text("a"), None, None),
        ]:
            output = self.result(hint, value)
            self.assertEqual((_tool.TOOLS["t"].output_schema, output.structured_json), (schema, structured), hint)

    def test_a_failure_has_no_structured_content(self) -> None:
        def fail() -> int:
            """Fails."""
            raise ToolError("no number")

        tool(fail)
        self.assertIsNone(_tool.run("fail", "{}").structured_json)
        for hint in (int, float, list[int]):
            with unittest.mock.patch("sys.stderr"):
                output = self.result(hint, True)
            self.assertTrue(output.is_error, hint)
            self.assertIsNone(output.structured_json)

    def result(self, hint: Any, value: Any) -> Output:
        """What a tool `t` with this hint gives back when it returns this value."""

        def t():  # type: ignore[no-untyped-def]
            """Tries."""
            return value

        t.__annotations__["return"] = hint
        _tool.TOOLS.pop("t", None)
        tool(t)
        return _tool.run("t", "{}")

    def test_exceptions_are_failed_results_and_call_errors_are_not(self) -> None:
        class Overbooked(Exception): ...

        @tool
        def fail(how: str) -> Output:
            """Fails."""
            raise {
                "tool": ToolError("no city"),
                "value": ValueError(),
                "key": KeyError("nothing"),
                "own": Overbooked("3 seats"),
                "kept": kv.KvError("quota", "no room"),
                "call": NotFound("no such"),
            }[how]

        for how, text in [
            ("tool", "no city"),
            ("value", "ValueError"),
            ("key", "KeyError: 'nothing'"),
            ("own", "Overbooked: 3 seats"),
            ("kept", "no room"),
        ]:
            with unittest.mock.patch("sys.stderr") as stderr:
                output = _tool.run("fail", f'{{"how": "{how}"}}')
            self.assertTrue(output.is_error)
            self.assertEqual(output.blocks[0].fields, {"text": text})
            self.assertEqual(stderr.write.called, how not in ("tool", "kept"), "what nobody meant goes to the log")
            stderr.reset_mock()
        with self.assertRaises(NotFound):
            _tool.run("fail", '{"how": "call"}')
        with self.assertRaises(NotFound):
            _tool.run("nothing", "{}")
        self.assertTrue(_tool.run("fail", '{"how": 3}').is_error)

    def test_a_tool_that_cannot_be_one_is_refused_where_it_is_defined(self) -> None:
        def bare(x: int) -> None: ...
        def untyped(x):  # type: ignore[no-untyped-def]
            """Has no hint."""

        def rest(*x: int) -> None:
            """Takes any number."""

        def several() -> Any:
            """Has several results."""
            yield 1

        async def many() -> Any:
            """Has several results, too."""
            yield 1

        for function, word in [
            (bare, "docstring"),
            (untyped, "type hint"),
            (rest, "by name"),
            (several, "tool several: write `return` in place of `yield`"),
            (many, "tool many: write `return` in place of `yield`"),
        ]:
            with self.assertRaisesRegex(TypeError, word):
                tool(function)


    def test_a_result_of_another_type_than_the_hint_is_an_error(self) -> None:
        @tool
        def answer(which: str) -> str:
            """Answers."""
            return values[which]  # type: ignore[return-value]

        @tool
        def find(which: str) -> Annotated[Trip, "Where to."] | list[float] | None:
            """Finds."""
            return values[which]  # type: ignore[return-value]

        values = {"text": "a", "number": 42, "nothing": None, "trip": Trip("Oslo"), "list": (1.5, 2)}
        expected = {"answer": {"text"}, "find": {"trip", "list", "nothing"}}
        for name, fitting in expected.items():
            for which in values:
                with unittest.mock.patch("sys.stderr"):
                    output = _tool.run(name, f'{{"which": "{which}"}}')
                self.assertEqual(output.is_error, which not in fitting, (name, which))
        with unittest.mock.patch("sys.stderr"):
            text = _tool.run("answer", '{"which": "number"}').blocks[0].fields["text"]
        self.assertEqual(text, "TypeError: tool answer returned a value of type int, but says that it returns str")

    def test_a_number_without_a_fraction_is_an_integer(self) -> None:
        @tool
        def sum(a: int, more: list[int], size: Literal[1, 2], level: Level, trip: Trip | None, share: float) -> str:
            """Adds."""
            return repr((a, more, size, level.name, trip and trip.travellers, share))

        given = '{"a": 2.0, "more": [1e2, -0.0], "size": 2.0, "level": 1.0, "trip": {"city": "x", "travellers": 3.0}, "share": 2}'
        self.assertEqual(_tool.run("sum", given).blocks[0].fields["text"], "(2, [100, 0], 2, 'LOW', 3, 2.0)")
        for wrong in ("2.5", "1e999", "true", '"2.0"'):
            output = _tool.run("sum", given.replace("2.0", wrong, 1))
            self.assertIn("/a: is not an integer", output.blocks[0].fields["text"])
        self.assertIn("/size", _tool.run("sum", given.replace('"size": 2.0', '"size": true')).blocks[0].fields["text"])
        with testing.host(answers={"trip": {"city": "Oslo", "travellers": 2.0}}):
            travellers = ask.form(Trip, key="trip", message="?").accepted().travellers
        self.assertIs(type(travellers), int)


class Offers(unittest.TestCase):
    def setUp(self) -> None:
        self.addCleanup(_offers.clear)

    def test_resources_are_read_by_uri_and_families_by_template(self) -> None:
        @resource("notes://today", mime_type="text/plain", meta={"ui": {"prefersBorder": True}})
        def today() -> str:
            """What is planned."""
            return "Buy bread."

        @resource("weather://{city}/now")
        def weather(city: str) -> dict[str, str]:
            return {"city": city}

        @resource("file:///{+path}")
        def file(path: str) -> bytes:
            return path.encode()

        self.assertEqual(_offers.read("notes://today"), ("text/plain", "Buy bread.", {"ui": {"prefersBorder": True}}))
        self.assertEqual(_offers.read("weather://S%C3%A3o%20Paulo/now"), ("application/json", '{"city": "São Paulo"}', {}))
        self.assertEqual(_offers.read("file:///a/b.txt"), (None, b"a/b.txt", {}))
        for unknown in ("notes://tomorrow", "weather://a/b/now", "weather:///now", "file:///"):
            with self.assertRaises(NotFound):
                _offers.read(unknown)
        self.assertEqual(_offers.RESOURCES["notes://today"].description, "What is planned.")
        self.assertEqual([known.name for known in _offers.page(None)[0]], ["today"])
        self.assertEqual(today(), "Buy bread.")

    def test_an_app_is_a_resource_with_what_it_may_reach(self) -> None:
        csp = {"connectDomains": ["https://a.org"]}
        app("ui://chart", "<p>", name="chart", csp=csp, permissions=("camera",), meta={"ui": {"prefersBorder": True}})
        app("ui://plain", lambda: "<b>", name="plain")
        ui = {"prefersBorder": True, "csp": csp, "permissions": {"camera": {}}}
        self.assertEqual(_offers.read("ui://chart"), ("text/html;profile=mcp-app", "<p>", {"ui": ui}))
        self.assertEqual(_offers.read("ui://plain"), ("text/html;profile=mcp-app", "<b>", {}))
        self.assertEqual(_offers.RESOURCES["ui://chart"].name, "chart")
        for wrong, expected in (
            (lambda: app("a://b", "", name="b"), "begins with ui://"),
            (lambda: app("ui://b", "", name="b", csp={"connect": []}), "there is no connect in a csp"),
            (lambda: app("ui://b", "", name="b", csp={"connectDomains": "x"}), "must be a list of domains"),
            (lambda: app("ui://b", "", name="b", permissions=("usb",)), "there is no permission usb"),
        ):
            with self.assertRaisesRegex(TypeError, expected):
                wrong()

    def test_a_long_list_has_pages(self) -> None:
        for number in range(_offers.PAGE + 1):
            resource(f"n://{number}", name="n")(lambda: "x")
        first, cursor = _offers.page(None)
        second, end = _offers.page(cursor)
        self.assertEqual((len(first), len(second), end), (_offers.PAGE, 1, None))
        with self.assertRaises(InvalidParams):
            _offers.page("x")

    def test_prompts_are_filled_in_and_completed(self) -> None:
        @prompt(title="Review")
        def review(code: Annotated[str, "What is reviewed."], language: str = "Python") -> str:
            """Reviews a piece of code."""
            return f"{language}: {code}"

        @prompt
        def talk() -> list[Message]:
            """Talks."""
            return [Message("user", "Hello."), Message("assistant", Output().text("Hi.").image(b"x", "image/png"))]

        @complete(review, "language")
        def languages(typed: str, decided: dict[str, str]) -> list[str]:
            return [name for name in ("Python", "Perl", decided.get("code", "")) if name.startswith(typed)]

        described = [(argument.name, argument.description, argument.required) for argument in _offers.PROMPTS["review"].arguments]
        self.assertEqual(described, [("code", "What is reviewed.", True), ("language", None, False)])
        self.assertEqual(_offers.fill_in("review", {"code": "x"}), ("Reviews a piece of code.", [Message("user", "Python: x")]))
        self.assertEqual([message.role for message in _offers.fill_in("talk", {})[1]], ["user", "assistant"])
        self.assertEqual(_offers.suggest("prompt", "review", "language", "P", {"code": "PL/1"}), (["Python", "Perl", "PL/1"], 3))
        self.assertEqual(_offers.suggest("prompt", "review", "code", "P", {}), ([], 0))
        with self.assertRaises(InvalidParams):
            _offers.fill_in("review", {})
        for unknown in (lambda: _offers.fill_in("other", {}), lambda: _offers.suggest("resource", "x://{a}", "a", "", {})):
            with self.assertRaises(NotFound):
                unknown()

    def test_what_cannot_be_offered_is_refused_where_it_is_defined(self) -> None:
        def one(city: str) -> str:
            """Of a city."""
            return city

        def number(count: int) -> str:
            """Counts."""
            return ""

        for define, word in [
            (lambda: resource("a://b")(one), "variables of the URI: none"),
            (lambda: resource("a://{town}")(one), "variables of the URI: town"),
            (lambda: resource("a://{city*}")(one), "can stand in a URI template"),
            (lambda: resource("a://{city}{city}")(one), "twice"),
            (lambda: prompt(number), "is no text"),
            (lambda: prompt(lambda: ""), "docstring"),
            (lambda: complete(one, "city"), "no prompt and no resource"),
            (lambda: complete(prompt(one), "town"), "no argument town"),
        ]:
            with self.assertRaisesRegex(TypeError, word):
                define()
        with self.assertRaisesRegex(TypeError, "from bulkhead_plugin import prompt"):
            _offers.check({"resources"})

    def test_what_goes_wrong_is_for_the_operator(self) -> None:
        @resource("a://b")
        def broken() -> str:
            raise ValueError("secret")

        with self.assertRaises(InternalError), unittest.mock.patch("sys.stderr"):
            _offers.read("a://b")


class Questions(unittest.TestCase):
    def test_answers_are_typed(self) -> None:
        script = {"trip": [{"city": "Oslo"}, "decline", {"city": 3}], "words": "hello", "where": [["file:///a"]]}
        with testing.host(answers=script) as host:
            self.assertEqual(ask.form(Trip, key="trip", message="Where?").accepted(), Trip("Oslo"))
            with self.assertRaises(ask.NotAccepted):
                ask.form(Trip, key="trip", message="Where?").accepted()
            with self.assertRaises(ask.Invalid):
                ask.form(Trip, key="trip", message="Where?")
            both = ask.all(ask.Sampling("hi", "words", 9), ask.Roots("where"))
            self.assertEqual((both[0].text, both[1]), ("hello", [ask.Root("file:///a", None)]))
        self.assertEqual([key for key, _ in host.asked], ["trip"] * 3 + ["words", "where"])
        with testing.host(features=[]), self.assertRaises(ask.Unsupported):
            ask.form(Trip, key="trip", message="Where?")

    def test_what_is_kept_is_found(self) -> None:
        with testing.host(kept={"a/2": b"\x00"}) as host:
            kv.set("a/1", "text", ttl=0.5)
            kv.set_json("b", {"n": [1]})
            self.assertEqual((kv.get("a/1"), kv.get("none"), kv.get_json("b"), kv.get_json("c", 4)), (b"text", None, {"n": [1]}, 4))
            self.assertEqual(kv.keys("a/"), ["a/1", "a/2"])
            kv.delete("a/1")
            with self.assertRaises(kv.KvError) as refused:
                kv.set("", b"x")
        self.assertEqual(refused.exception.reason, "invalid")
        self.assertEqual(host.kept, {"a/2": b"\x00", "b": b'{"n": [1]}'})

    def test_settings_have_the_type_of_their_default(self) -> None:
        with testing.host(config={"delimiter": ";", "rows": "many"}):
            self.assertEqual(config.get("delimiter", ","), ";")
            self.assertEqual(config.get("missing", 4), 4)
            with self.assertRaisesRegex(Exception, "config.rows"):
                config.get("rows", 5)

    def test_state_is_saved_and_restored(self) -> None:
        with testing.host() as host:
            self.assertIsNone(task.restored())
            task.save(b"40")
            self.assertEqual(host.saved, b"40")
            with self.assertRaisesRegex(ValueError, "at most 262144 are kept"):
                task.save(bytes((256 << 10) + 1))
        with testing.host(restored=b"41"):
            self.assertEqual(task.restored(), b"41")

    def test_a_client_shows_views_that_says_so(self) -> None:
        views = {"mimeTypes": ["text/html;profile=mcp-app"]}
        with testing.host(extensions={"io.modelcontextprotocol/ui": views}):
            self.assertEqual((call.client_shows_views(), call.client_extension("io.modelcontextprotocol/ui")), (True, views))
            self.assertIsNone(call.client_extension("x"))
        with testing.host():
            self.assertFalse(call.client_shows_views())

    def test_a_cancelled_call_leaves_at_the_checkpoint(self) -> None:
        with testing.host(steering=["hello"]) as host:
            self.assertTrue(task.checkpoint().steering_pending)
            self.assertEqual(task.steering(), ["hello"])
            host.cancelled = True
            with self.assertRaises(task.Cancelled):
                task.checkpoint()
        with self.assertRaisesRegex(RuntimeError, "testing.host"):
            task.steering()


class Coroutines(unittest.TestCase):
    def setUp(self) -> None:
        _tool.TOOLS.clear()
        _offers.clear()

    def test_a_coroutine_runs_to_its_end_on_the_clock_of_the_host(self) -> None:
        @tool
        async def gather() -> list[int]:
            """Waits for three at once, and not for a fourth."""

            async def one(number: int) -> int:
                await asyncio.sleep(100 * number)
                return number

            began = asyncio.create_task(one(1000))
            try:
                async with asyncio.timeout(1):
                    await asyncio.sleep(5)
            except TimeoutError:
                found = list(await asyncio.gather(one(3), one(1), one(2)))
            await asyncio.to_thread(found.append, 4)
            self.assertFalse(began.done())
            return found

        with testing.host() as host:
            self.assertEqual(_tool.run("gather", "{}").blocks[0].fields["text"], "[3, 1, 2, 4]")
        self.assertAlmostEqual(host.slept_ms, 301_000, delta=100)

    def test_a_coroutine_that_waits_for_nothing_fails(self) -> None:
        @tool
        async def stuck() -> str:
            """Waits for nobody."""
            await asyncio.Event().wait()
            return ""

        @tool
        async def wrong() -> str:
            """Returns something else."""
            return 3  # type: ignore[return-value]

        with testing.host(), unittest.mock.patch("sys.stderr"):
            said = _tool.run("stuck", "{}")
            self.assertTrue(said.is_error)
            self.assertIn("nothing is left to bring about", said.blocks[0].fields["text"])
            self.assertIn("returned a value of type int", _tool.run("wrong", "{}").blocks[0].fields["text"])

    def test_prompts_and_resources_may_be_coroutines(self) -> None:
        @resource("note://{id}")
        async def note(id: str) -> str:
            await asyncio.sleep(1)
            return id

        @prompt
        async def ask_it(what: str) -> str:
            """Asks."""
            return what

        @complete(ask_it, "what")
        async def whats(typed: str) -> list[str]:
            return [typed]

        with testing.host():
            self.assertEqual(_offers.read("note://7"), (None, "7", {}))
            self.assertEqual(_offers.fill_in("ask_it", {"what": "x"})[1][0].content, "x")
            self.assertEqual(_offers.suggest("prompt", "ask_it", "what", "t", {}), (["t"], 1))


class LateImports(unittest.TestCase):
    def test_imports_of_functions_are_found_in_their_code(self) -> None:
        source = """def reads():
            import csv
            from . import near
            from email import message as _
            def inner(name):
                importlib.import_module("a.constant")
                importlib.import_module(name)
                __import__("b.constant")
        """
        code = compile(source, "reads.py", "exec")
        found = [late for part in _late._nested(code) for late in _late._imports(part, "mine.own")]
        self.assertEqual(
            [(late.module, late.names, late.line) for late in found],
            [
                ("csv", (), 2),
                ("mine.own", ("near",), 3),
                ("email", ("message",), 4),
                ("a.constant", (), 6),
                (None, (), 7),
                ("b.constant", (), 8),
            ],
        )

    def test_an_import_with_another_way_out_is_optional(self) -> None:
        source = "def f():\n    try:\n        import a\n    except (ImportError, KeyError):\n        import b\n    try:\n        import c\n    finally:\n        pass\n"
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(source)
            file.flush()
            optional = [_late._is_optional(_late.Late("m", (), file.name, line)) for line in (3, 5, 7)]
        self.assertEqual(optional, [True, False, False])

    def test_a_plugin_that_offers_nothing_is_refused(self) -> None:
        _tool.TOOLS.clear()
        _offers.clear()
        with self.assertRaisesRegex(TypeError, "the plugin has no tool: write `@tool`"):
            _offers.check(set())


class Snapshots(unittest.TestCase):
    def reads(self, source: str) -> list[str]:
        """What a module of this text reads when it is imported, as WHAT:LINE."""
        code = compile(source, "/1/plugin.py", "exec")
        # Here the standard library lies where a package could.
        others = (*_late._NOT_OWN, sysconfig.get_path("stdlib"))
        before = _host.become(None)
        try:
            with unittest.mock.patch.object(_late, "_NOT_OWN", others), tempfile.NamedTemporaryFile("r") as file:
                _snapshot.watch()
                try:
                    exec(code, {"__name__": "plugin"})
                finally:
                    _snapshot.report(file.name)
                found = json.load(file)
        finally:
            _host.become(before)
        self.assertEqual({read["file"] for read in found} - {"plugin.py"}, set())
        return [f"{read['what']}:{read['line']}" for read in found]

    def test_what_a_module_reads_once_is_seen_with_its_line(self) -> None:
        for source, expected in [
            ("import time\nSTART = time.time()", ["time.time:2"]),
            ("from time import monotonic_ns\n\nSTART = monotonic_ns()", ["time.monotonic_ns:3"]),
            ("import datetime\nBORN = datetime.datetime.now()", ["datetime.now:2"]),
            ("from datetime import date\nBORN = date.today()", ["datetime.today:2"]),
            ("import random\nLUCK = random.random()", ["random.random:2"]),
            ("import random\nLUCK = random.choice([1, 2])", ["random.getrandbits:2"]),
            ("import random\nDICE = random.Random()", ["the seed of random.Random():2"]),
            ("import random\nrandom.seed()", ["the seed of random.seed():2"]),
            ("import uuid\nID = uuid.uuid4()", ["os.urandom:2"]),
            ("import secrets\nKEY = secrets.token_hex()", ["os.urandom:2"]),
            ("import os\nHOME = os.environ.get('HOME')", ["os.environ:2"]),
            ("import os\nHOME = os.getenv('HOME')", ["os.environ:2"]),
            ("import os\nALL = dict(os.environ)", ["os.environ:2"]),
            ("import time\ndef now():\n    return time.time()\nSTART = now()", ["time.time:3"]),
            ("import time\nA, B = time.time(), time.time()", ["time.time:2"]),
            # What is read in a call, or is the same each time.
            ("import time\ndef now():\n    return time.time()", []),
            ("import random\nLUCK = random.Random(7).random()", []),
            ("import random\nDICE = random.SystemRandom()", []),
            ("import datetime\nBORN = datetime.datetime(2020, 1, 1).isoformat()", []),
            ("import logging, random, tempfile, uuid", []),
        ]:
            with self.subTest(source):
                self.assertEqual(self.reads(source), expected)

    @unittest.skipIf(sys.version_info < (3, 12), "the interpreter does not say with what a function in C is called")
    def test_a_clock_is_seen_where_a_function_is_given_no_time(self) -> None:
        for source, expected in [
            ("import time\nNOW = time.localtime()", ["time.localtime:2"]),
            ("from time import gmtime\nNOW = gmtime(None)", ["time.gmtime:2"]),
            ("import time\nNOW = time.ctime()", ["time.ctime:2"]),
            ("import time\nEPOCH = time.gmtime(0), time.asctime(time.gmtime(0)), time.ctime(0)", []),
            ("import time\nYEAR = time.strptime('2020', '%Y')", []),
        ]:
            with self.subTest(source):
                self.assertEqual(self.reads(source), expected)

    def test_the_host_is_not_asked_while_the_plugin_is_built(self) -> None:
        for source in ["config.get('greeting', '')", "config.all()", "kv.get('a')", "task.sleep(1)", "http.get('https://a.example')"]:
            with self.subTest(source), self.assertRaisesRegex(TypeError, "while the plugin is built"):
                self.reads(f"from bulkhead_plugin import config, http, kv, task\n{source}")


class Services(unittest.TestCase):
    def test_a_service_answers_from_the_script(self) -> None:
        services = {
            "https://api.example.com/rates": {"rate": 1.5},
            "POST https://api.example.com/orders": lambda request: http.Response(201, http.Headers([]), request.body),
            "https://down.example.com": 503,
        }
        with testing.host(services=services) as host:
            response = http.get("https://api.example.com/rates#now")
            self.assertEqual((response.status, response.ok, response.json()), (200, True, {"rate": 1.5}))
            self.assertEqual(response.headers["Content-Type"], "application/json")
            created = http.post("https://api.example.com/orders", json={"of": "tea"}, headers={"X-Key": "k"})
            self.assertEqual((created.status, created.json()), (201, {"of": "tea"}))
            with self.assertRaisesRegex(ToolError, "answered with 503 Service Unavailable"):
                http.get("https://down.example.com/any").raise_for_status()
        sent = host.requests[1]
        self.assertEqual((sent.method, sent.body), ("POST", b'{"of": "tea"}'))
        self.assertEqual(dict(sent.headers)["X-Key"], "k")
        self.assertEqual(dict(sent.headers)["content-type"], "application/json")

    def test_what_the_script_does_not_have_is_not_granted(self) -> None:
        with testing.host(services={"https://slow.example.com": http.HttpError("timeout", "too slow")}):
            with self.assertRaises(http.NotGranted) as refused:
                http.get("https://other.example.com:8443/path")
            self.assertEqual(refused.exception.grant, "https://other.example.com:8443")
            said = "GET https://other.example.com:8443 is not granted to this plugin"
            self.assertEqual(str(refused.exception), said, "which side withholds it is for the host to say")
            with self.assertRaises(http.HttpError) as late:
                http.get("https://slow.example.com/")
            self.assertEqual(late.exception.reason, "timeout")

    def test_a_url_is_absolute_and_without_a_password(self) -> None:
        for wrong in ("ftp://example.com", "example.com", "https://", "https://me:secret@example.com/", "https://[x"):
            with self.assertRaises(http.HttpError) as refused:
                http.checked(wrong)
            self.assertEqual(refused.exception.reason, "invalid", wrong)
            self.assertNotIn("secret", str(refused.exception))
        self.assertEqual(http.checked("https://süd.example/ä b?q=%20"), "https://xn--sd-xka.example/%C3%A4%20b?q=%20")
        with testing.host(), self.assertRaises(TypeError):
            http.post("https://example.com", body="a", json=1)

    def test_urllib_goes_the_same_way(self) -> None:
        moved = http.Response(302, http.Headers([("Location", "/there")]), b"")
        services = {"https://example.com/moved": moved, "https://example.com/there": "hello", "https://example.com/no": 404}
        with testing.host(services=services) as host:
            with urllib.request.urlopen("https://example.com/moved", data=b"a=b", timeout=3) as response:
                self.assertEqual((response.status, response.url, response.read()), (200, "https://example.com/there", b"hello"))
            self.assertEqual([request.method for request in host.requests], ["POST", "GET"])
            self.assertEqual((host.requests[0].body, host.requests[0].timeout), (b"a=b", 3))
            with self.assertRaises(urllib.error.HTTPError) as failed:
                urllib.request.urlopen("https://example.com/no")
            self.assertEqual((failed.exception.code, failed.exception.reason), (404, "Not Found"))
            with self.assertRaises(urllib.error.URLError) as refused:
                urllib.request.build_opener().open("http://other.example.com")
            self.assertIsInstance(refused.exception.reason, http.NotGranted)
        self.assertIsNot(urllib.request.HTTPHandler.http_open, _urllib._open, "it is as before")

    def test_text_is_in_the_encoding_of_the_response(self) -> None:
        def text(kind: str, body: bytes) -> str:
            return http.Response(200, http.Headers([("content-type", kind)]), body).text()

        self.assertEqual(text("text/plain; charset=latin-1", b"\xe4"), "ä")
        self.assertEqual(text('text/plain; charset="no-such"', "ä".encode()), "ä")
        self.assertEqual(http.Response(200, http.Headers([]), b"\xff").text(), "\ufffd")


if __name__ == "__main__":
    unittest.main()
