from dataclasses import replace

from tests.unit.workers.context.histories import FixedCalibration, a_round, assistant, user
from workers.context.calibration import Sample
from workers.context.messages import ImagePart, Message, TextPart
from workers.context.meter import TokenMeter
from workers.model.values import ModelRequest, ModelTarget, ToolSchema, Usage

TARGET = ModelTarget(
    name="m", base_url="http://m", api_key="k", context_size=8_000, max_output_tokens=1_000
)
TOOL = ToolSchema(name="look", description="Look it up.", parameters={"type": "object"})
REQUEST = ModelRequest(
    target=TARGET, messages=(user("q " * 400), assistant("a " * 400)), tools=(TOOL,)
)
REPORTED = Usage(input_tokens=1_000, output_tokens=9)


def test_first_request_is_counted_whole() -> None:
    meter = TokenMeter(FixedCalibration(2.0))
    halves = TokenMeter(FixedCalibration(1.0))
    assert abs(meter.measure(REQUEST) - 2 * halves.measure(REQUEST)) <= 1


def test_request_that_goes_on_is_the_reported_size_and_the_growth() -> None:
    meter = TokenMeter(FixedCalibration())
    meter.observe(REQUEST, REPORTED)
    assert meter.measure(REQUEST) == 1_000
    more = a_round("x" * 500)
    longer = replace(REQUEST, messages=(*REQUEST.messages, *more))
    assert meter.measure(longer) == 1_000 + meter.measure(
        replace(REQUEST, messages=more, tools=(), purpose="synthesis")
    )


def test_any_other_request_is_counted_whole() -> None:
    meter = TokenMeter(FixedCalibration())
    plain = meter.measure(REQUEST)
    meter.observe(REQUEST, REPORTED)
    others = [
        replace(REQUEST, tools=()),
        replace(REQUEST, purpose="synthesis"),
        replace(REQUEST, target=replace(TARGET, name="other")),
        replace(REQUEST, messages=REQUEST.messages[1:]),
        replace(REQUEST, messages=(replace(REQUEST.messages[0], content="x"), assistant("a"))),
    ]
    assert all(meter.measure(other) <= plain for other in others)


def test_estimated_usage_teaches_nothing() -> None:
    calibration = FixedCalibration()
    meter = TokenMeter(calibration)
    plain = meter.measure(REQUEST)
    meter.observe(REQUEST, replace(REPORTED, is_estimated=True))
    assert meter.measure(REQUEST) == plain
    assert calibration.learned == []


def test_reported_size_is_learned_with_the_shape_of_the_whole_request() -> None:
    calibration = FixedCalibration()
    meter = TokenMeter(calibration)
    meter.observe(REQUEST, REPORTED)
    (sample,) = calibration.learned
    assert sample.tokens == 1_000
    assert sample.tools > 0
    assert -(-(sample.ascii + sample.tools) // 1) == meter.measure(
        replace(REQUEST, purpose="synthesis")
    )


def test_images_have_their_price_and_are_not_learned_from() -> None:
    calibration = FixedCalibration(3.0)
    meter = TokenMeter(calibration)
    image = Message(role="user", content=(TextPart(text=""), ImagePart(url="data:,")))
    with_image = replace(REQUEST, messages=(image,), tools=())
    assert meter.measure(with_image) == 765 + 3 * 4
    meter.observe(with_image, REPORTED)
    assert calibration.learned == []


def test_counter_counts_as_the_meter_measures() -> None:
    meter = TokenMeter(FixedCalibration(1.3, 1.7))
    messages = (user("漢字 and words"), *a_round("one", "two"))
    request = replace(REQUEST, messages=messages)
    counted = meter.counter(TARGET).request(request)
    assert 0 <= counted - meter.measure(request) <= len(messages) + 1


def test_sample_knows_its_ratio() -> None:
    assert Sample(100, 60, 40, 300).ratio == 1.5
