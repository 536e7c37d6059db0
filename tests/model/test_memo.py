from exporter.model.memo import Memo, same


def test_it_is_made_again_only_if_an_input_is_another_object() -> None:
    made: list[tuple[list[int], str]] = []

    def make(numbers: list[int], name: str) -> int:
        made.append((numbers, name))
        return len(made)

    memo, numbers = Memo(0), [1]
    assert memo.of(make, numbers, "a") == 1
    assert memo.of(make, numbers, "a") == 1
    assert memo.of(make, [1], "a") == 2  # an equal object is another object
    assert made == [(numbers, "a"), ([1], "a")]


def test_inputs_whose_value_could_not_be_made_are_tried_again() -> None:
    memo = Memo(0.0)
    for numerator in (1, 1):
        try:
            memo.of(lambda number: number / 0, numerator)
        except ZeroDivisionError:
            assert memo.value == 0
    assert memo.of(float, 1) == 1


def test_a_memo_knows_the_inputs_with_which_a_value_was_kept() -> None:
    memo, pods = Memo(""), object()
    assert not memo.is_of(pods)
    memo.keep("made", pods)
    assert memo.is_of(pods)
    assert not memo.is_of(pods, pods)
    assert not memo.is_of(object())
    assert memo.value == "made"


def test_more_objects_are_not_the_same() -> None:
    one = object()
    assert same((one,), [one])
    assert not same((one,), (one, one))
    assert not same((), (one,))
