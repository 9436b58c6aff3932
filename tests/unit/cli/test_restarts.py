from cli.restarts import LONGEST_DELAY_S, RestartState


def test_delay_doubles_from_half_a_second_up_to_the_longest() -> None:
    state = RestartState(was_ready=True)
    delays = []
    for _ in range(9):
        state = state.after_death(lived_s=1)
        delays.append(state.delay_s)

    assert delays == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_good_life_resets_the_delay() -> None:
    state = RestartState(was_ready=True)
    for _ in range(5):
        state = state.after_death(lived_s=59.9)

    assert state.after_death(lived_s=60).delay_s == 0.5


def test_third_death_before_ready_is_hopeless() -> None:
    twice = RestartState().after_death(lived_s=1).after_death(lived_s=1)

    assert not twice.is_hopeless
    assert twice.after_death(lived_s=1).is_hopeless


def test_child_that_was_ready_once_is_never_hopeless() -> None:
    state = RestartState().after_death(lived_s=1).after_ready()
    for _ in range(5_000):
        state = state.after_death(lived_s=0)

    assert not state.is_hopeless
    assert state.delay_s == LONGEST_DELAY_S


def test_refusal_before_ready_is_hopeless_at_once() -> None:
    assert RestartState().after_death(lived_s=1, code=2).is_hopeless
    assert not RestartState().after_death(lived_s=1, code=1).is_hopeless
    assert not RestartState(was_ready=True).after_death(lived_s=1, code=2).is_hopeless
