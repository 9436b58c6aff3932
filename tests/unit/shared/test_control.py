"""Control messages survive versions that say more."""

import orjson

from shared.control import ControlMessage, parse_control


def test_fields_of_a_newer_version_are_ignored() -> None:
    payload = orjson.dumps({"type": "inject", "injection_id": "inj_1", "priority": 3})
    assert parse_control(payload) == ControlMessage(type="inject", injection_id="inj_1")


def test_message_is_read_as_it_was_sent() -> None:
    message = ControlMessage(type="cancel")
    assert parse_control(orjson.dumps(message)) == message
