"""How a pretrained model is asked: the system turn, and the project's own chat template for base models.

A base model has no chat template that it was trained with: it gets the turns as plain paragraphs, and its answer begins
inside the working. A model with a template of its own keeps it.
"""

WORKING = ("<start_working_out>", "<end_working_out>")
ANSWER = ("<SOLUTION>", "</SOLUTION>")
SYSTEM = (
    "You are given a problem. Think about the problem and write down your working between"
    f" {WORKING[0]} and {WORKING[1]}. Then write the result between {ANSWER[0]} and {ANSWER[1]}."
)
#: Jinja, as tokenizers keep it.
PROJECT = (
    "{% for message in messages %}{{ message['content'] + '\\n\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '" + WORKING[0] + "' }}{% endif %}"
)


def turns(problem: str) -> list[dict[str, str]]:
    """Return the conversation that asks ``problem``."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": problem}]
