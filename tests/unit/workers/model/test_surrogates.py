from workers.model.surrogates import SurrogateJoiner, join_surrogates


def test_halves_sent_separately_make_one_character() -> None:
    joiner = SurrogateJoiner()
    assert joiner.feed("a\ud83d") == "a"
    assert joiner.feed("\ude00b") == "😀b"


def test_a_half_without_its_other_is_replaced() -> None:
    joiner = SurrogateJoiner()
    assert joiner.feed("\ud83d") == ""
    assert joiner.feed("x\ude00") == "\N{REPLACEMENT CHARACTER}x\N{REPLACEMENT CHARACTER}"


def test_text_without_halves_stays() -> None:
    assert join_surrogates("plain") == "plain"
    assert join_surrogates("naïve 😀") == "naïve 😀"


def test_pairs_are_joined_and_single_halves_replaced() -> None:
    assert join_surrogates("\ud83d\ude00 \ud83d") == "😀 \N{REPLACEMENT CHARACTER}"
