import pytest

from shared.errors import ModelStreamError
from workers.context.messages import ToolCall
from workers.model.tool_calls import ToolCallAssembly


def piece(
    arguments: object = None,
    *,
    index: int | None = 0,
    call_id: str | None = None,
    name: str | None = None,
) -> dict[str, object]:
    made: dict[str, object] = {"function": {"name": name, "arguments": arguments}}
    if index is not None:
        made["index"] = index
    if call_id is not None:
        made["id"] = call_id
    return made


def assemble(*pieces: dict[str, object]) -> list[tuple[str, str, str]]:
    assembly = ToolCallAssembly()
    for each in pieces:
        assembly.feed(each)
    return [(call.id, call.name, call.arguments) for call in assembly.finish()]


def test_pieces_of_one_call_are_joined() -> None:
    calls = assemble(
        piece("", call_id="a", name="add"), piece('{"x"'), piece(": 1"), piece("}", call_id="")
    )
    assert calls == [("a", "add", '{"x": 1}')]


def test_calls_are_told_apart_by_index_even_interleaved() -> None:
    calls = assemble(
        piece("", index=0, call_id="a", name="add"),
        piece("", index=1, call_id="b", name="add"),
        piece("[0]", index=0),
        piece("[1]", index=1),
    )
    assert calls == [("a", "add", "[0]"), ("b", "add", "[1]")]


def test_three_calls_at_one_index_are_told_apart_by_id() -> None:
    calls = assemble(
        *(
            each
            for call_id in "abc"
            for each in (piece('{"x":', call_id=call_id, name="add"), piece("1}"))
        )
    )
    assert calls == [(call_id, "add", '{"x":1}') for call_id in "abc"]


def test_two_calls_at_one_index_without_ids_are_told_apart_by_name() -> None:
    calls = assemble(piece("{", name="add"), piece("}"), piece("", name="sub"), piece("{}"))
    assert calls == [("call_1", "add", "{}"), ("call_2", "sub", "{}")]


def test_same_name_without_id_begins_a_call_once_the_arguments_are_whole() -> None:
    calls = assemble(piece("{}", name="add"), piece("[1]", name="add"))
    assert calls == [("call_1", "add", "{}"), ("call_2", "add", "[1]")]


def test_name_repeated_with_each_piece_is_one_call() -> None:
    calls = assemble(piece("", name="add"), piece('{"x":', name="add"), piece("1}", name="add"))
    assert calls == [("call_1", "add", '{"x":1}')]


def test_id_and_name_repeated_with_each_piece_is_one_call() -> None:
    calls = assemble(*(piece(part, call_id="a", name="add") for part in ("{", "}")))
    assert calls == [("a", "add", "{}")]


def test_id_and_name_repeated_at_the_end_is_one_call() -> None:
    calls = assemble(*(piece(part, call_id="a", name="add") for part in ("{", "}", "")))
    assert calls == [("a", "add", "{}")]


def test_two_calls_with_one_id_at_one_index() -> None:
    calls = assemble(
        *(
            each
            for number in "12"
            for each in (piece("", call_id="a", name="add"), piece(f"[{number}"), piece("]"))
        )
    )
    assert calls == [("a", "add", "[1]"), ("a", "add", "[2]")]


def test_new_id_with_each_piece_is_one_call() -> None:
    calls = assemble(piece("", call_id="a", name="add"), piece("{", call_id="b"), piece("}"))
    assert calls == [("a", "add", "{}")]


def test_pieces_with_a_known_id_go_to_their_call() -> None:
    calls = assemble(
        piece("", call_id="a", name="add"),
        piece("", call_id="b", name="sub"),
        piece("[1]", call_id="a"),
        piece("[2]", call_id="b"),
    )
    assert calls == [("a", "add", "[1]"), ("b", "sub", "[2]")]


def test_calls_without_index_sent_whole() -> None:
    calls = assemble(
        piece("{}", index=None, call_id="a", name="add"),
        piece("{}", index=None, call_id="b", name="add"),
    )
    assert calls == [("a", "add", "{}"), ("b", "add", "{}")]


def test_id_before_name_is_one_call() -> None:
    assert assemble(piece(call_id="a"), piece("{}", name="add")) == [("a", "add", "{}")]


def test_made_up_ids_differ_from_given_ones() -> None:
    calls = assemble(
        piece("{}", index=0, name="a"), piece("{}", index=1, call_id="call_1", name="b")
    )
    assert [call[0] for call in calls] == ["call_1_", "call_1"]


def test_broken_arguments_stay_as_they_came() -> None:
    assert assemble(piece('{"x": ', call_id="a", name="add")) == [("a", "add", '{"x": ')]


def test_no_arguments_are_an_empty_object() -> None:
    assert assemble(piece(None, call_id="a", name="now")) == [("a", "now", "{}")]


def test_arguments_sent_as_an_object_become_json() -> None:
    assert assemble(piece({"x": 1}, call_id="a", name="add")) == [("a", "add", '{"x":1}')]


def test_call_without_name_is_refused() -> None:
    assembly = ToolCallAssembly()
    assembly.feed(piece("{}", call_id="a"))
    with pytest.raises(ModelStreamError, match="without a name"):
        assembly.finish()


def test_halves_of_a_character_in_arguments_are_joined() -> None:
    assembly = ToolCallAssembly()
    assembly.feed(piece('"\ud83d', call_id="a", name="say"))
    assembly.feed(piece('\ude00"'))
    assert assembly.finish() == (ToolCall(id="a", name="say", arguments='"😀"'),)
