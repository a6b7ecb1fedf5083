"""Questions whose answers end in a number."""

from collections.abc import Sequence
from dataclasses import dataclass

from jackfield.core.api import SamplingParams
from jackfield.core.evaluation.documents import Question, last_number
from jackfield.core.llm import LLM

WISH = "Think step by step, and end with the answer as a number."


@dataclass(frozen=True, slots=True)
class TaskScore:
    """Of how many questions the last number of the answer was right. cut: how many answers were
    longer than allowed. right_alone: how many that the other model did not answer rightly."""

    questions: int
    right: int
    cut: int
    right_alone: int

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.right / max(self.questions, 1)


class Answered:
    """What one model made of the questions, in their order."""

    def __init__(self, right: Sequence[bool], cut: int) -> None:
        self.right, self.cut = right, cut

    def beside(self, other: "Answered") -> TaskScore:
        """The score, with what the other model did not know."""
        alone = sum(mine and not its for mine, its in zip(self.right, other.right, strict=True))
        return TaskScore(len(self.right), sum(self.right), self.cut, alone)


def answer(llm: LLM, questions: Sequence[Question], max_tokens: int) -> Answered:
    """Greedily, through the chat template if there is one."""
    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    tokenizer = llm.assembly.tokenizer
    if tokenizer is not None and tokenizer.chat_template is not None:
        chats = [[{"role": "user", "content": f"{each.text}\n{WISH}"}] for each in questions]
        outputs = llm.chat(chats, params)
    else:
        outputs = llm.generate([f"Question: {each.text}\nAnswer:" for each in questions], params)
    answers = [output.outputs[0] for output in outputs]
    right = [
        last_number(each.text) == question.answer
        for each, question in zip(answers, questions, strict=True)
    ]
    return Answered(right, sum(each.finish_reason == "length" for each in answers))
