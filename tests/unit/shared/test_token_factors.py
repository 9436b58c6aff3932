from shared.repositories.token_factors import _learned


def test_sample_of_another_form_is_passed_over() -> None:
    learned = _learned([[1.0, 2.0, 3], [1.5, 2.5, 3.5, 4]], 8_000, ["tools"])
    assert learned.samples == ((1.5, 2.5, 3.5, 4),)
    assert learned.context_size == 8_000
    assert learned.refused == {"tools"}
