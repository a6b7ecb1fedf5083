"""`jackfield eval`: what a configuration does to the answers."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jackfield.core.api import ConfigError
from jackfield.server.commands.options import JsonOption, SetOption, read_settings, resolve

if TYPE_CHECKING:
    from jackfield.core.evaluation.model import Material
    from jackfield.core.inspection import Resolved

group = typer.Typer(help="Compare the answers of two configurations.")
TOO_FAR = 1
"""The exit code of a model that is further from its reference than allowed."""
DTYPES = {
    "bf16": "bfloat16", "bfloat16": "bfloat16", "fp16": "float16", "float16": "float16",
    "fp32": "float32", "float32": "float32",
}  # fmt: skip
ConfigsOption = Annotated[
    list[Path] | None,
    typer.Option("--config", metavar="FILE", help="A configuration, in TOML; twice: A, then B."),
]
TextOption = Annotated[
    Path | None, typer.Option("--text", metavar="FILE", help="Instead of the built-in text.")
]
TokensOption = Annotated[
    int | None, typer.Option("--tokens", min=2, help="Of the text; default: all that fit.")
]


ModelOption = Annotated[
    str | None, typer.Option("--model", metavar="FOLDER", help="Instead of the configuration's.")
]
ReferenceOption = Annotated[
    str | None,
    typer.Option(
        "--reference", metavar="FOLDER|TYPE",
        help="Another model, or the same one in another type, such as bf16.",
    ),
]  # fmt: skip
ModelConfigsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--config", metavar="FILE", help="Of both, in TOML; twice: the model's, the reference's."
    ),
]
ModelTextOption = Annotated[
    Path | None,
    typer.Option("--text", metavar="FILE", help="A text, or *.jsonl with a text a line."),
]
TaskOption = Annotated[
    Path | None,
    typer.Option(
        "--task", metavar="FILE", help="*.jsonl with question and answer; last numbers count."
    ),
]
LimitOption = Annotated[
    int | None, typer.Option("--limit", min=1, help="Of the questions; default: all.")
]
LongestOption = Annotated[int, typer.Option("--max-tokens", min=1, help="Of an answer.")]
MaxKlOption = Annotated[
    float | None,
    typer.Option("--max-kl", min=0, help="Exit with 1 if the mean divergence is larger."),
]
FewTokensOption = Annotated[
    int | None, typer.Option("--tokens", min=2, help="Of the text; default: 4 GiB of logits.")
]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.add_typer(group, name="eval")


@group.callback()
def _group() -> None:
    """Compare the answers of two configurations."""


@group.command("kv")
def kv_command(
    configs: ConfigsOption = None,
    text: TextOption = None,
    tokens: TokensOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what the KV cache of configuration B costs in accuracy against that of A.

    Both have to be the same model. Each reads the text through its paged cache, 64 tokens at a
    time, and goes on greedily for 64 tokens. --set holds for both.
    """
    files = configs or []
    if len(files) != 2:
        raise ConfigError(
            f"--config is given {len(files)} times; give it twice, first A and then B"
        )
    content = None if text is None else _read(text)
    a, b = (resolve(file, settings) for file in files)
    # Imported late: it brings torch, which --help and a wrong flag need not wait for.
    from jackfield.core.checkpoint.progress import RichProgress
    from jackfield.core.evaluation.kv import Text, compare_kv
    from jackfield.server.eval_report import kv_lines

    result = compare_kv(a, b, Text(content, tokens), RichProgress())
    names = (str(files[0]), str(files[1]))
    if as_json:
        typer.echo(json.dumps({"config_a": names[0], "config_b": names[1], **result.as_dict()}))
    else:
        typer.echo(kv_lines(result, names))


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--text {file} cannot be read: {error}") from error


@group.command("model")
def model_command(
    model: ModelOption = None,
    reference: ReferenceOption = None,
    configs: ModelConfigsOption = None,
    text: ModelTextOption = None,
    tokens: FewTokensOption = None,
    task: TaskOption = None,
    limit: LimitOption = None,
    max_tokens: LongestOption = 256,
    max_kl: MaxKlOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell how far a model is from its reference, such as quantized weights from what they were.

    Both have to have the same tokenizer. Each reads the text, the reference first, and answers the
    questions of --task greedily. --set holds for both.
    """
    both = _both(model, reference, configs or [], settings)
    from jackfield.core.checkpoint.progress import RichProgress
    from jackfield.core.evaluation.model import compare_models
    from jackfield.core.evaluation.subject import require_plain, subject_of
    from jackfield.server.eval_report import model_lines

    material, progress = _material(text, tokens, task, limit, max_tokens), RichProgress()
    found, known = (subject_of(resolved, progress) for resolved in both)
    if reference in DTYPES:
        require_plain(known, DTYPES[reference])
    result = compare_models(found, known, material, progress)
    typer.echo(json.dumps(result.as_dict()) if as_json else model_lines(result))
    if max_kl is not None and result.mean_kl > max_kl:
        typer.echo(f"the mean divergence is above {max_kl:g}", err=True)
        raise typer.Exit(TOO_FAR)


def _both(
    model: str | None, reference: str | None, files: list[Path], settings: list[str] | None
) -> "tuple[Resolved, Resolved]":
    if len(files) > 2 or (reference is None and len(files) < 2):
        raise ConfigError(
            f"--config is given {len(files)} times and --reference "
            f"{'not at all' if reference is None else 'once'}; give a --reference, a folder or a "
            f"type such as bf16, or --config twice, the model's and the reference's"
        )
    own = [*files, None, None] if len(files) != 1 else [files[0], files[0]]
    given = read_settings(settings or [])
    name = {} if model is None else {"model.name": model}
    change = {"model.dtype": DTYPES[reference]} if reference in DTYPES else {}
    if reference is not None and not change:
        change = {"model.name": reference}
    return resolve(own[0], None, given | name), resolve(own[1], None, given | name | change)


def _material(
    text: Path | None, tokens: int | None, task: Path | None, limit: int | None, longest: int
) -> "Material":
    from jackfield.core.evaluation.documents import read_documents, read_questions
    from jackfield.core.evaluation.kv import DEFAULT_TEXT
    from jackfield.core.evaluation.model import Material

    questions = [] if task is None else read_questions(task)[:limit]
    return Material(read_documents(text or DEFAULT_TEXT), tokens, questions, longest)
