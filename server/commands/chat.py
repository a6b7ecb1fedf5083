"""`jackfield chat`: a conversation in the terminal."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from jackfield.core.api import RequestError, SamplingParams
from jackfield.server.commands.engine_options import EngineArguments, engine_group
from jackfield.server.commands.sampling_options import SAMPLING, Given, sampling_params
from jackfield.server.option_groups import grouped
from jackfield.server.terminal import read_line, show

if TYPE_CHECKING:
    from jackfield.server.session import Session

HELP = "/reset forgets the conversation, /quit or Ctrl-D ends it, Ctrl-C stops an answer"
SystemOption = Annotated[
    str | None, typer.Option("--system", metavar="TEXT", help="What the model is told first.")
]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("chat")(chat_command)


@grouped(sampling=SAMPLING, engine=engine_group(without=("seed",)))
def chat_command(engine: EngineArguments, sampling: Given, system: SystemOption = None) -> None:
    """Talk with a model, which remembers the conversation.

    Sampling is what the model's generation_config.json asks for, else greedy, unless flags say
    otherwise. If standard input is no terminal, each line of it is a message, and an error ends
    the command.
    """
    # Imported late: it brings torch, which --help and a wrong flag need not wait for.
    from jackfield.server.session import Session

    with Session(**engine.keywords) as session:
        params = sampling_params(sampling, session.recommended)
        Conversation(session, params, system, interactive=sys.stdin.isatty()).run()


class Conversation:
    """Messages so far, and a loop that adds to them."""

    def __init__(
        self, session: "Session", params: SamplingParams, system: str | None, *, interactive: bool
    ) -> None:
        self._session = session
        self._params = params
        self._interactive = interactive
        self._start = [] if system is None else [{"role": "system", "content": system}]
        self._messages = list(self._start)

    def run(self) -> None:
        """Until the end of the input, or /quit."""
        if self._interactive:
            _tell(HELP)
        while (line := self._next_line()) is not None and line != "/quit":
            if line.startswith("/"):
                self._command(line)
            elif line:
                self._turn(line)

    def _next_line(self) -> str | None:
        if not self._interactive:
            line = read_line()
            return None if line is None else line.strip()
        try:
            return input("> ").strip()
        except EOFError:
            show("\n")
            return None

    def _command(self, line: str) -> None:
        if line == "/reset":
            self._messages = list(self._start)
            _tell("the conversation starts anew")
        else:
            _tell(HELP if line == "/help" else f"unknown command {line}; {HELP}")

    def _turn(self, line: str) -> None:
        """One message and its answer. A message that is refused is forgotten again."""
        self._messages.append({"role": "user", "content": line})
        shown: list[str] = []
        try:
            self._answer(shown)
        except RequestError as error:
            self._messages.pop()
            if not self._interactive:
                raise
            _tell(f"error: {error}; /reset forgets what was said before")
        except KeyboardInterrupt:
            if not self._interactive:
                raise
            show("\n")
            self._keep(shown)

    def _answer(self, shown: list[str]) -> None:
        def on_text(text: str) -> None:
            shown.append(text)
            show(text)

        prompt = self._session.conversation(self._messages)
        output = self._session.answer(prompt, self._params, on_text)
        show("\n")
        self._keep(shown)
        if output.outputs[0].finish_reason == "length":
            count = len(output.outputs[0].token_ids)
            _tell(f"cut off after {count} tokens; --max-tokens sets the limit")

    def _keep(self, shown: list[str]) -> None:
        self._messages.append({"role": "assistant", "content": "".join(shown)})


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
