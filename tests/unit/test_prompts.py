"""Prompts and targets: the project's template and a model's own, one BOS, and prompts that are too long."""

import types
from pathlib import Path

import pytest
from byte_model import CHAT, tokenizer
from tokenizers import processors

from sage.config import load_suite
from sage.errors import UserError
from sage.policy.template import ANSWER, PROJECT, SYSTEM, WORKING
from sage.policy.tokens import encode_prompts, encode_targets, fitting
from sage.tasks._math.region import last_tagged
from sage.train.sft import _short_enough

PROBLEM = "What is 2 + 3?\nSay it in a word: é."


def text(made, row):
    return made.decode(row)


def test_a_base_model_is_asked_in_the_projects_template():
    made = tokenizer(PROJECT)
    [prompt] = encode_prompts(made, [PROBLEM])
    assert text(made, prompt) == f"<bos>{SYSTEM}\n\n{PROBLEM}\n\n{WORKING[0]}"


def test_a_chat_model_keeps_its_template():
    made = tokenizer(CHAT)
    [prompt] = encode_prompts(made, [PROBLEM])
    assert text(made, prompt) == f"<bos>[system]{SYSTEM}[user]{PROBLEM}[answer]"


def test_without_a_template_the_prompt_is_the_problem():
    made = tokenizer(None)
    [prompt] = encode_prompts(made, [PROBLEM])
    assert text(made, prompt) == f"<bos>{PROBLEM}"


@pytest.mark.parametrize("template", [PROJECT, "<bos>" + CHAT, "<bos><bos>" + CHAT, None])
def test_there_is_exactly_one_bos(template):
    made = tokenizer(template)
    [prompt] = encode_prompts(made, [PROBLEM])
    assert prompt[0] == made.bos_token_id
    assert prompt.count(made.bos_token_id) == 1


def test_a_model_that_wants_no_bos_gets_none():
    made = tokenizer(PROJECT)
    made.bos_token = None
    made.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    [prompt] = encode_prompts(made, [PROBLEM])
    assert text(made, prompt).startswith(SYSTEM)


def test_the_answer_that_is_asked_for_is_the_one_that_is_graded():
    assert last_tagged(f"{ANSWER[0]}7{ANSWER[1]}") == "7"
    assert all(tag in SYSTEM for tag in (*WORKING, *ANSWER))


def test_what_opens_the_working_is_said_once():
    answer = f"{WORKING[0]}two and three{WORKING[1]}{ANSWER[0]}5{ANSWER[1]}"
    for template, opened in ((PROJECT, 1), (CHAT, 1)):
        made = tokenizer(template)
        [prompt], [target] = encode_prompts(made, [PROBLEM]), encode_targets(made, [answer])
        said = made.decode(prompt + target).replace(SYSTEM, "")
        assert said.count(WORKING[0]) == opened
        assert target[-1] == made.eos_token_id
        assert made.decode(target[:-1]).endswith(f"5{ANSWER[1]}")


def model(over_long):
    return types.SimpleNamespace(max_prompt_tokens=3, over_long=over_long)


def test_a_prompt_that_is_too_long_is_an_error_or_is_counted(capsys):
    prompts = [[1], [1, 2, 3], [1, 2, 3, 4]]
    with pytest.raises(UserError, match=r"rl: 1 of 3 prompts have more than 3 tokens, the longest 4; raise"):
        fitting(prompts, model("error"), "rl", skip=True)
    with pytest.raises(UserError, match="1 of 3 prompts"):  # in an evaluation none is left out
        fitting(prompts, model("skip"), "rl", skip=False)
    assert not capsys.readouterr().out
    assert fitting(prompts, model("skip"), "rl", skip=True) == [0, 1]
    assert "rl: 1 of 3 prompts have more than 3 tokens and are left out" in capsys.readouterr().out
    assert fitting(prompts, None, "rl", skip=False) == [0, 1, 2]
    with pytest.raises(UserError, match="3 of 3 prompts"):  # nothing would be left
        fitting([[1] * 4] * 3, model("skip"), "rl", skip=True)


def test_fine_tuning_leaves_out_what_is_longer_than_it_allows(capsys, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    sft = load_suite("workflow/config/qwen2.5-math-7b.yaml").sft
    assert sft.max_tokens == 8192 // 2  # half of the context
    prompts, targets = [[1] * 96, [1] * 96, [1]], [[2] * 4000, [2] * 4001, [2]]
    kept = _short_enough(sft, prompts, targets)
    assert [len(p) + len(t) for p, t in zip(*kept, strict=True)] == [4096, 2]
    assert "sft: 1 of 3 rows are too long and left out" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"sft.max_tokens: every row of sft has more than 4096"):
        _short_enough(sft, prompts[1:2], targets[1:2])
