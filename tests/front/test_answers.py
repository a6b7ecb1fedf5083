"""The text of an answer after its prompt."""

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from jackfield.core.api import FinishReason, SamplingParams
from jackfield.core.engine.messages import Delta
from jackfield.core.front.answers import Answers
from jackfield.core.front.prompts import Prompt
from jackfield.core.text.tokenizer import Tokenizer

WORDS = {"▁hello": 0, "▁big": 1, "▁world": 2}


def words() -> Tokenizer:
    """A tokenizer that drops the space before the first word of a text."""
    backend = tokenizers.Tokenizer(models.WordLevel(WORDS, unk_token="▁hello"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return Tokenizer(backend)


def test_prompt_and_answer_do_not_join_two_words() -> None:
    answers = Answers("a", Prompt("hello", [0]), SamplingParams(), words())
    answers.take(Delta("a", 0, [1]))
    answers.take(Delta("a", 0, [2], finish=FinishReason.LENGTH))
    assert "hello" + answers.output.outputs[0].text == "hello big world"


def test_news_after_the_end_count_for_nothing() -> None:
    answers = Answers("a", Prompt("hello", [0]), SamplingParams(stop=["big"]), words())
    assert answers.take(Delta("a", 0, [1])), "the engine has to be told"
    assert not answers.take(Delta("a", 0, [2]))
    assert not answers.take(Delta("a", 0, [], finish=FinishReason.ABORT))
    output = answers.output.outputs[0]
    assert (output.text, output.token_ids, output.finish_reason) == (" ", [1], "stop")
    assert output.stop_reason == "big" and answers.output.finished
