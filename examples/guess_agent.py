"""Bring your own agent: a program that guesses a number, and asks the policy for every guess.

rlanything train guess_agent
"""

import random

LIMIT = 8


async def solve(task, client):
    """Returns whether the number was guessed: the outcome."""
    secret, tries = task.data["secret"], task.data["tries"]
    rule = "Answer with a thought, then > and one action."
    messages = [{"role": "user", "content": f"{task.instruction}\n{rule}\nYou have {tries} tries."}]
    numbers = [str(number) for number in range(1, LIMIT + 1)]
    for _ in range(tries):
        reply = await client.chat.completions.create(
            model="policy",
            messages=messages,
            extra_body={"structured_outputs": {"choice": numbers}},
        )
        said = reply.choices[0].message.content
        _, marker, guess = said.rpartition(">")
        guess = guess.strip()
        if marker and guess == str(secret):
            return True
        hint = "Say a number."
        if marker and guess in numbers:
            hint = "Higher." if int(guess) < secret else "Lower."
        messages.append({"role": "assistant", "content": said})
        messages.append({"role": "user", "content": hint})
    return False


def rows(count, seed):
    """Returns tasks, as guess_agent.jsonl holds them."""
    rng = random.Random(seed)
    instruction = f"Guess a number between 1 and {LIMIT} in 4 tries."
    return [
        {
            "id": str(i),
            "instruction": instruction,
            "data": {"secret": rng.randint(1, LIMIT), "tries": 4},
        }
        for i in range(count)
    ]
