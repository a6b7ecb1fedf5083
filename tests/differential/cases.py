"""The requests of a differential run: made from a seed, the same each time.

A case is a dict: `name`, `group` (completion, chat, error, route), `method`, `path`, and `body`.
Every answer is the likeliest, so that two servers with the same weights must agree. Several such
answers to one prompt are drawn with `top_k` 1, because not every server gives them greedily.
"""

from random import Random
from typing import Any

Case = dict[str, Any]
Fields = dict[str, Any]

MODEL = "smol"
COUNT = 260
PROMPTS = (
    "The capital of France is",
    "Once upon a time there was a small robot who",
    "def fibonacci(n):\n    ",
    "Water boils when it",
    "1, 2, 3, 4, 5,",
    "My grandmother's garden had",
    "In the middle of the night the telephone",
    "The three primary colours are",
)
UNICODE = (
    "Le café était fermé, alors",
    "今日の天気は",
    "Smile 😀 and say 👩‍👩‍👧‍👦:",
    "Ünïcödé ﬁnds \u2028 its way",
    "Привет, мир! Сегодня",
)
QUESTIONS = (
    "What is the capital of France? Answer in one sentence.",
    "Name three animals.",
    "Write a short poem about rain.",
    "How many days has a week?",
    "Say hello in Japanese, with an emoji.",
)
IDS = (504, 3575, 282, 4649, 314, 253, 1165, 2776, 338, 6042)
LONG = "The quick brown fox jumps over the lazy dog near the river bank. " * 60
STREAM_OPTIONS: tuple[Fields, ...] = (
    {},
    {"stream_options": {"include_usage": True}},
    {"stream_options": {"include_usage": False}},
    {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    {"stream_options": {"include_usage": False, "continuous_usage_stats": True}},
)

SHARED: tuple[tuple[str, Fields], ...] = (
    ("plain", {}),
    ("max_tokens 1", {"max_tokens": 1}),
    ("n 2", {"n": 2, "temperature": 1, "top_k": 1, "max_tokens": 8}),
    ("n 2, greedy", {"n": 2, "max_tokens": 4}),
    ("one stop string", {"stop": " the", "max_tokens": 40}),
    ("several stop strings", {"stop": [",", ".", "\n"], "max_tokens": 40}),
    ("a stop string kept", {"stop": [" a", " is"], "include_stop_str_in_output": True}),
    ("a stop of several tokens", {"stop": " of the", "max_tokens": 40}),
    ("stop ids", {"stop_token_ids": [28, 30, 198], "max_tokens": 40}),
    ("min_tokens", {"min_tokens": 12, "stop": [",", "."], "max_tokens": 24}),
    ("ignore_eos", {"ignore_eos": True, "max_tokens": 48}),
    ("logit_bias", {"logit_bias": {"28": -100, "260": 2.5, "30": 100}, "max_tokens": 6}),
    ("presence_penalty", {"presence_penalty": 1.5, "max_tokens": 24}),
    ("frequency_penalty", {"frequency_penalty": 1.0, "max_tokens": 24}),
    ("repetition_penalty", {"repetition_penalty": 1.3, "max_tokens": 24}),
    ("allowed ids", {"allowed_token_ids": [260, 28, 30, 314, 253, 282], "max_tokens": 8}),
    ("bad_words", {"bad_words": [" the", "Paris", " a"], "max_tokens": 16}),
    ("special tokens shown", {"skip_special_tokens": False, "max_tokens": 48}),
    ("seed", {"seed": 7, "max_tokens": 12}),
    ("token ids", {"return_token_ids": True, "max_tokens": 12}),
    ("prompt_logprobs 0", {"prompt_logprobs": 0, "max_tokens": 2}),
    ("prompt_logprobs 3", {"prompt_logprobs": 3, "max_tokens": 2}),
    ("truncated prompt", {"truncate_prompt_tokens": 4, "max_tokens": 8}),
    ("truncated prompt, right", {"truncate_prompt_tokens": 4, "truncation_side": "right",
                                 "max_tokens": 8}),
    ("spaces between special tokens", {"spaces_between_special_tokens": True}),
    ("user and priority 0", {"user": "someone", "priority": 0}),
)  # fmt: skip
COMPLETIONS: tuple[tuple[str, Fields], ...] = (
    ("logprobs 0", {"logprobs": 0, "max_tokens": 8}),
    ("logprobs 1", {"logprobs": 1, "max_tokens": 8}),
    ("logprobs 5", {"logprobs": 5, "max_tokens": 8}),
    ("logprobs and a stop", {"logprobs": 2, "stop": " of the", "max_tokens": 30}),
    ("echo", {"echo": True, "max_tokens": 4}),
    ("echo, logprobs", {"echo": True, "logprobs": 1, "max_tokens": 1}),
    ("echo, max_tokens 0", {"echo": True, "max_tokens": 0, "logprobs": 1}),
    ("echo, n 2", {"echo": True, "n": 2, "temperature": 1, "top_k": 1, "max_tokens": 3}),
    ("max_tokens 0", {"max_tokens": 0}),
    ("strings", {"prompt": list(PROMPTS[:3]), "max_tokens": 6}),
    ("strings, n 2, logprobs", {"prompt": list(PROMPTS[3:5]), "n": 2, "temperature": 1,
                                "top_k": 1, "logprobs": 1, "max_tokens": 4}),
    ("ids", {"prompt": list(IDS), "max_tokens": 8}),
    ("lists of ids", {"prompt": [list(IDS[:4]), list(IDS[4:])], "max_tokens": 5}),
    ("ids, echo, logprobs", {"prompt": list(IDS), "echo": True, "logprobs": 1, "max_tokens": 1}),
    ("long", {"prompt": LONG, "max_tokens": 6}),
    ("no special tokens added", {"add_special_tokens": False, "max_tokens": 6}),
    ("tokens as ids", {"logprobs": 1, "return_tokens_as_token_ids": True, "max_tokens": 4}),
    ("logprobs, special tokens shown", {"logprobs": 0, "skip_special_tokens": False}),
    ("default length", {"max_tokens": None}),
    ("best_of 1", {"best_of": 1, "max_tokens": 4}),
    *((f"unicode {place}", {"prompt": text, "max_tokens": 10, "logprobs": 0})
      for place, text in enumerate(UNICODE)),
)  # fmt: skip
CHATS: tuple[tuple[str, Fields], ...] = (
    ("logprobs", {"logprobs": True, "max_tokens": 6}),
    ("top_logprobs 0", {"logprobs": True, "top_logprobs": 0, "max_tokens": 6}),
    ("top_logprobs 5", {"logprobs": True, "top_logprobs": 5, "max_tokens": 6}),
    ("logprobs and a stop", {"logprobs": True, "stop": [" of"], "max_tokens": 24}),
    ("max_completion_tokens", {"max_completion_tokens": 5, "max_tokens": None}),
    ("system", {"messages": [{"role": "system", "content": "You speak like a pirate."},
                             {"role": "user", "content": "Who are you?"}]}),
    ("turns", {"messages": [{"role": "user", "content": "My name is Ann."},
                            {"role": "assistant", "content": "Hello Ann!"},
                            {"role": "user", "content": "What is my name?"}]}),
    ("parts", {"messages": [{"role": "user", "content": [
        {"type": "text", "text": "Count to"}, {"type": "text", "text": "three."}]}]}),
    ("no generation prompt", {"add_generation_prompt": False, "max_tokens": 6}),
    ("continued", {"add_generation_prompt": False, "continue_final_message": True,
                   "messages": [{"role": "user", "content": "Which city?"},
                                {"role": "assistant", "content": "The city is called"}]}),
    ("continued, echo", {"add_generation_prompt": False, "continue_final_message": True,
                         "echo": True,
                         "messages": [{"role": "user", "content": "Which city?"},
                                      {"role": "assistant", "content": "The city is called"}]}),
    ("unicode", {"messages": [{"role": "user", "content": UNICODE[1] + UNICODE[2]}],
                 "logprobs": True}),
    ("long", {"messages": [{"role": "user", "content": LONG}], "max_tokens": 6}),
    ("tokens as ids", {"logprobs": True, "top_logprobs": 1, "return_tokens_as_token_ids": True,
                       "max_tokens": 4}),
    ("response_format text", {"response_format": {"type": "text"}, "max_tokens": 4}),
    ("no effect", {"metadata": {"a": "b"}, "store": False, "service_tier": "auto",
                   "parallel_tool_calls": True, "safety_identifier": "x", "max_tokens": 4}),
    ("reasoning_effort", {"reasoning_effort": "low", "max_tokens": 4}),
)  # fmt: skip
ASK = [{"role": "user", "content": "Hi"}]
COMPLETE, CHAT = "/v1/completions", "/v1/chat/completions"
ERRORS: tuple[tuple[str, str, str, Any], ...] = (
    ("unknown model", "POST", COMPLETE, {"model": "nothing", "prompt": "a"}),
    ("unknown model, chat", "POST", CHAT, {"model": "nothing", "messages": ASK}),
    ("too long", "POST", COMPLETE, {"prompt": LONG * 4}),
    ("too long, chat", "POST", CHAT, {"messages": [{"role": "user", "content": LONG * 4}]}),
    ("too long, streamed", "POST", COMPLETE, {"prompt": LONG * 4, "stream": True}),
    ("max_tokens too big", "POST", COMPLETE, {"prompt": "a", "max_tokens": 100_000}),
    ("prompt and max_tokens too big", "POST", COMPLETE, 
     {"prompt": "a b c", "max_tokens": 2047, "stop": [" ", "\n", "a"]}),
    ("prompt and max_tokens too big, chat", "POST", CHAT, {"messages": ASK, "max_tokens": 2040}),
    ("truncate_prompt_tokens too big", "POST", COMPLETE,
     {"prompt": "a", "truncate_prompt_tokens": 3000}),
    ("max_tokens negative", "POST", COMPLETE, {"prompt": "a", "max_tokens": -1}),
    ("max_tokens 0, chat", "POST", CHAT, {"messages": ASK, "max_tokens": 0}),
    ("prompt is a number", "POST", COMPLETE, {"prompt": 5}),
    ("prompt is mixed", "POST", COMPLETE, {"prompt": ["a", 5]}),
    ("no prompt", "POST", COMPLETE, {"max_tokens": 1}),
    ("empty prompt", "POST", COMPLETE, {"prompt": ""}),
    ("empty list", "POST", COMPLETE, {"prompt": []}),
    ("empty messages", "POST", CHAT, {"messages": []}),
    ("no messages", "POST", CHAT, {}),
    ("message without a role", "POST", CHAT, {"messages": [{"content": "a"}]}),
    ("id out of range", "POST", COMPLETE, {"prompt": [10_000_000]}),
    ("n 0", "POST", COMPLETE, {"prompt": "a", "n": 0}),
    ("n is text", "POST", COMPLETE, {"prompt": "a", "n": "two"}),
    ("temperature -1", "POST", COMPLETE, {"prompt": "a", "temperature": -1}),
    ("temperature is text", "POST", CHAT, {"messages": ASK, "temperature": "hot"}),
    ("top_p 2", "POST", COMPLETE, {"prompt": "a", "top_p": 2}),
    ("logprobs 30", "POST", COMPLETE, {"prompt": "a", "logprobs": 30}),
    ("top_logprobs 30", "POST", CHAT, {"messages": ASK, "logprobs": True, "top_logprobs": 30}),
    ("top_logprobs alone", "POST", CHAT, {"messages": ASK, "top_logprobs": 2}),
    ("presence_penalty 3", "POST", COMPLETE, {"prompt": "a", "presence_penalty": 3}),
    ("stream_options alone", "POST", CHAT,
     {"messages": ASK, "stream_options": {"include_usage": True}}),
    ("min_tokens over max_tokens", "POST", COMPLETE,
     {"prompt": "a", "min_tokens": 9, "max_tokens": 3}),
    ("empty stop string", "POST", COMPLETE, {"prompt": "a", "stop": ""}),
    ("logit_bias 200", "POST", COMPLETE, {"prompt": "a", "logit_bias": {"5": 200}}),
    ("logit_bias of a word", "POST", COMPLETE, {"prompt": "a", "logit_bias": {"the": 1}}),
    ("prompt_logprobs, streamed", "POST", COMPLETE,
     {"prompt": "a", "prompt_logprobs": 1, "stream": True}),
    ("both generation prompt and continuation", "POST", CHAT,
     {"messages": ASK, "add_generation_prompt": True, "continue_final_message": True}),
    ("body is a list", "POST", COMPLETE, [1]),
    ("unknown path", "POST", "/v1/nothing", {"prompt": "a"}),
    ("wrong method", "GET", COMPLETE, None),
    ("detokenize text", "POST", "/detokenize", {"tokens": ["a"]}),
    ("tokenize nothing", "POST", "/tokenize", {}),
)  # fmt: skip
ROUTES: tuple[tuple[str, str, str, Any], ...] = (
    ("models", "GET", "/v1/models", None),
    ("version", "GET", "/version", None),
    ("tokenizer_info", "GET", "/tokenizer_info", None),
    ("tokenize", "POST", "/tokenize", {"prompt": "Hello, world! 1234"}),
    ("tokenize unicode", "POST", "/tokenize",
     {"prompt": UNICODE[2], "return_token_strs": True}),
    ("tokenize, nothing added", "POST", "/tokenize",
     {"prompt": "<|im_start|>user", "add_special_tokens": False}),
    ("tokenize a chat", "POST", "/tokenize", {"messages": ASK}),
    ("tokenize a chat, no generation prompt", "POST", "/tokenize",
     {"messages": ASK, "add_generation_prompt": False}),
    ("detokenize", "POST", "/detokenize", {"tokens": list(IDS)}),
    ("detokenize special tokens", "POST", "/detokenize", {"tokens": [1, 504, 2, 198]}),
)  # fmt: skip


def make_cases(seed: int, count: int = COUNT) -> list[Case]:
    """The fixed cases, then mixtures of fields up to `count`."""
    cases = [_other("route", *route) for route in ROUTES]
    cases += [_other("error", *error) for error in ERRORS]
    for group, own in (("completion", COMPLETIONS), ("chat", CHATS)):
        for name, fields in (*SHARED, *own):
            wants_scores = "prompt_logprobs" in fields
            for streamed in (False,) if wants_scores else (False, True):
                cases.append(_answer(seed, group, name, fields, streamed))
    while len(cases) < count:
        cases.append(_mixture(seed, len(cases)))
    return cases[:count]


def _other(group: str, name: str, method: str, path: str, body: Any) -> Case:
    if isinstance(body, dict) and path.startswith("/v1"):
        body = {"model": MODEL, "temperature": 0, **body}
    return {"name": name, "group": group, "method": method, "path": path, "body": body}


def _answer(seed: int, group: str, name: str, fields: Fields, streamed: bool) -> Case:
    title = f"{group}: {name}{', streamed' if streamed else ''}"
    random = Random(f"{seed} {title}")
    body: Fields = {"model": MODEL, "temperature": 0, "max_tokens": 16}
    if group == "chat":
        body["messages"] = [{"role": "user", "content": random.choice(QUESTIONS)}]
    else:
        body["prompt"] = random.choice(PROMPTS)
    body |= fields
    if streamed:
        body |= {"stream": True} | random.choice(STREAM_OPTIONS)
    path = CHAT if group == "chat" else COMPLETE
    return {"name": title, "group": group, "method": "POST", "path": path, "body": body}


def _mixture(seed: int, place: int) -> Case:
    random = Random(f"{seed} {place}")
    group = random.choice(("completion", "chat"))
    own = COMPLETIONS if group == "completion" else CHATS
    mixed = [random.choice(SHARED[:20]), random.choice(SHARED[:20]), random.choice(own)]
    fields: Fields = {}
    for _, some in mixed:
        fields |= some
    if (fields.get("max_tokens") or 16) < fields.get("min_tokens", 0):
        fields["max_tokens"] = 24
    name = f"{place}: " + " + ".join(name for name, _ in mixed)
    return _answer(seed, group, name, fields, random.random() < 0.5)
