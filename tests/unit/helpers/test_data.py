"""The conversations of the test data are whole."""

from collections import Counter

from tests.helpers.data import load_multilingual_chats, load_tool_trajectories


def test_chats_cover_six_languages() -> None:
    chats = load_multilingual_chats()

    assert Counter(chat.language for chat in chats) == dict.fromkeys(
        ("en", "de", "fr", "ru", "ja", "zh"),
        2,
    )
    assert all(len(chat.exchanges) == 2 for chat in chats)
    assert all(not exchange.rounds for chat in chats for exchange in chat.exchanges)


def test_trajectories_pair_each_tool_call_with_its_result() -> None:
    for chat in load_tool_trajectories():
        assert chat.instructions
        rounds = [message for exchange in chat.exchanges for message in exchange.rounds]
        asked = [call.id for message in rounds for call in message.tool_calls]
        answered = [message.tool_call_id for message in rounds if message.role == "tool"]

        assert asked == answered != []
