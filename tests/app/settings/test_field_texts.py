import attrs

from plancha_app.settings.field_texts import class_text, field_texts


@attrs.frozen
class Grill:
    """What is
    told of it."""

    heat: int = 3
    """Of the plate,
    from 1 to 9."""

    width: int = attrs.field(default=1)
    name: str = ""  # a comment is no text
    oil: bool = True
    """Said of `oil`."""

    def method(self) -> None:
        """Said of no field."""

    @attrs.frozen
    class Drawer:
        """Inside."""

        depth: int = 0
        """Of the drawer."""


def test_the_string_below_a_field_is_its_text_in_one_line() -> None:
    assert field_texts(Grill) == {"heat": "Of the plate, from 1 to 9.", "oil": "Said of `oil`."}
    assert class_text(Grill) == "What is told of it."


def test_a_class_inside_another_has_its_own() -> None:
    assert field_texts(Grill.Drawer) == {"depth": "Of the drawer."}
