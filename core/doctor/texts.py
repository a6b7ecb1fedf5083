"""Tokenizer, chat template, ends of answers and sampling defaults."""

from jackfield.core.api import JackfieldError, ModelSpec
from jackfield.core.doctor.finding import Finding, note, ok, problem
from jackfield.core.doctor.source import Source
from jackfield.core.text.tokenizer import Tokenizer


def check_texts(source: Source, spec: ModelSpec | None) -> list[Finding]:
    """spec: None where the model is not known."""
    try:
        tokenizer = source.tokenizer()
    except JackfieldError as error:
        return [problem("tokenizer", str(error)), *_generation(source, None, spec)]
    return [
        _tokenizer(tokenizer, spec),
        _template(tokenizer),
        *_generation(source, tokenizer, spec),
    ]


def _tokenizer(tokenizer: Tokenizer, spec: ModelSpec | None) -> Finding:
    size = tokenizer.size
    if spec is None:
        return ok("tokenizer", f"It has {size:,} tokens.")
    if size > spec.vocab_size:
        return problem(
            "tokenizer",
            f"It has {size:,} tokens, but the model only {spec.vocab_size:,} rows (vocab_size), so "
            f"that requests with the last tokens are refused; take the tokenizer that belongs to "
            f"the model.",
        )
    if size < spec.vocab_size // 2:
        return note(
            "tokenizer",
            f"It has {size:,} tokens, but the model {spec.vocab_size:,} rows (vocab_size), more "
            f"than padding needs; make sure that it belongs to the model.",
        )
    return ok("tokenizer", f"It has {size:,} tokens for {spec.vocab_size:,} rows of the model.")


def _template(tokenizer: Tokenizer) -> Finding:
    if tokenizer.chat_template is None:
        return note(
            "template",
            "There is no chat template, so that chats are refused; put a chat_template.jinja into "
            "the folder, or use plain prompts.",
        )
    complaint = tokenizer.chat_template.trial()
    if complaint is not None:
        return note(
            "template",
            f"A plain chat fails: {complaint}; send what it asks for, or mend the template.",
        )
    return ok("template", "A plain chat renders.")


def _generation(
    source: Source, tokenizer: Tokenizer | None, spec: ModelSpec | None
) -> list[Finding]:
    end = None if tokenizer is None else tokenizer.eos_token_id
    ends = source.eos_ids | (frozenset() if end is None else {end})
    found = [_ends(ends, spec)]
    if source.ignored:
        found.append(note(
            "sampling",
            f"generation_config.json has keys without effect, {', '.join(source.ignored)}; send "
            f"them with requests if they are known there.",
        ))  # fmt: skip
    if source.defaults:
        values = ", ".join(f"{key} {value}" for key, value in source.defaults.items())
        found.append(ok("sampling", f"generation_config.json presets {values}."))
    return found


def _ends(ends: frozenset[int], spec: ModelSpec | None) -> Finding:
    listed = ", ".join(map(str, sorted(ends)))
    if not ends:
        return note(
            "ends",
            "No token ends an answer, so that each has max_tokens tokens; set eos_token_id in "
            "generation_config.json.",
        )
    if spec is not None and max(ends) >= spec.vocab_size:
        return problem(
            "ends",
            f"Answers end at the token ids {listed}, of which {max(ends)} is none of the model's "
            f"{spec.vocab_size:,}; correct eos_token_id in config.json and generation_config.json.",
        )
    return ok("ends", f"Answers end at the token ids {listed}.")
