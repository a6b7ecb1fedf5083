"""Progress on a terminal and elsewhere."""

import io

from jackfield.core.checkpoint.progress import RichProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def work(stream: io.StringIO) -> str:
    progress = RichProgress(stream)
    for label in ("First [x]", "Second"):
        progress.start(label, 10)
        progress.advance(10)
        progress.finish()
    progress.start("Third", None)
    progress.finish()
    return stream.getvalue()


def test_plain_lines_when_not_a_terminal() -> None:
    assert work(io.StringIO()) == "First [x]\nSecond\nThird\n"


def test_bar_on_a_terminal() -> None:
    text = work(Terminal())
    assert "First [x]" in text
    assert "━" in text
    assert "\x1b[" in text
