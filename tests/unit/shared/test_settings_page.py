"""The page of settings says what the class says."""

from shared.settings_page import PAGE, render


def test_page_is_in_step_with_the_class() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python -m shared.settings_page"
