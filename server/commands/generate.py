"""`jackfield generate`: one prompt, one answer."""

import json
import sys
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from jackfield.core.api import RequestError
from jackfield.server.commands.engine_options import EngineArguments, engine_group
from jackfield.server.commands.options import JsonOption
from jackfield.server.commands.sampling_options import SAMPLING, Given, sampling_params
from jackfield.server.option_groups import grouped
from jackfield.server.table import table
from jackfield.server.terminal import read_all, show

if TYPE_CHECKING:
    from jackfield import RequestOutput
    from jackfield.server.session import Prompt, Session

PromptArgument = Annotated[
    str, typer.Argument(metavar="PROMPT", help="The prompt; - reads it from standard input.")
]
RawOption = Annotated[bool, typer.Option("--raw", help="Do not apply the chat template.")]
SystemOption = Annotated[
    str | None, typer.Option("--system", metavar="TEXT", help="What the model is told first.")
]
NoStreamOption = Annotated[
    bool, typer.Option("--no-stream", help="Write the answer when it is complete.")
]
ExplainOption = Annotated[
    bool, typer.Option("--explain", help="Tell on stderr what the scheduler decided.")
]


class Wish(NamedTuple):
    """What is asked, and how."""

    prompt: str
    system: str | None
    raw: bool


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("generate")(generate_command)


@grouped(sampling=SAMPLING, engine=engine_group(without=("seed",)))
def generate_command(
    prompt: PromptArgument,
    engine: EngineArguments,
    sampling: Given,
    system: SystemOption = None,
    raw: RawOption = False,
    no_stream: NoStreamOption = False,
    explain: ExplainOption = False,
    as_json: JsonOption = False,
) -> None:
    """Answer one prompt.

    The prompt goes through the model's chat template if it has one. Answers are greedy (temperature
    0) unless --temperature says otherwise. The answer goes to stdout, everything else to stderr.
    """
    wish = _checked(prompt, system, raw)
    # Imported late: it brings torch, which --help and a wrong flag need not wait for.
    from jackfield.server.session import Session

    with Session(**engine.keywords) as session:
        started = perf_counter()
        ready = _prompt(session, wish)
        quiet = as_json or no_stream
        output = session.answer(ready, sampling_params(sampling, {}), _ignore if quiet else show)
        decisions = session.explain() if explain else []
        if as_json:
            result = _as_json(output, session.model, perf_counter() - started)
            typer.echo(json.dumps(result | ({"decisions": decisions} if explain else {})))
            return
        show(f"{output.outputs[0].text}\n" if no_stream else "\n")
        _tell(output, decisions)


def _checked(prompt: str, system: str | None, raw: bool) -> Wish:
    text = read_all() if prompt == "-" else prompt
    if not text:
        raise RequestError(
            "the prompt is empty; give a text, or - to read it from standard input", param="prompt"
        )
    if raw and system is not None:
        raise RequestError(
            "--system needs the chat template, which --raw leaves out; drop one of them",
            param="system",
        )
    return Wish(text, system, raw)


def _prompt(session: "Session", wish: Wish) -> "Prompt":
    if wish.raw or (wish.system is None and not session.has_template):
        return {"prompt": wish.prompt}
    system = [] if wish.system is None else [{"role": "system", "content": wish.system}]
    return session.conversation([*system, {"role": "user", "content": wish.prompt}])


def _ignore(text: str) -> None:
    """What is not shown while it comes."""


def _as_json(output: "RequestOutput", model: str, seconds: float) -> dict[str, Any]:
    answer = output.outputs[0]
    return {
        "answer": answer.text,
        "finish_reason": answer.finish_reason,
        "stop_reason": answer.stop_reason,
        "prompt_tokens": len(output.prompt_token_ids),
        "output_tokens": len(answer.token_ids),
        "seconds": round(seconds, 4),
        "model": model,
    }


def _tell(output: "RequestOutput", decisions: list[dict[str, Any]]) -> None:
    answer = output.outputs[0]
    if answer.finish_reason == "length":
        count = len(answer.token_ids)
        print(f"cut off after {count} tokens; --max-tokens sets the limit", file=sys.stderr)
    if decisions:
        header = ("SECONDS", "STEP", "DECISION", "BY", "REASON")
        start = decisions[0]["time"]
        rows = [
            (f"{one['time'] - start:.3f}", str(one["step"]), one["action"], one["plugin"],
             one["reason"])
            for one in decisions
        ]  # fmt: skip
        print(table(header, rows), file=sys.stderr)
