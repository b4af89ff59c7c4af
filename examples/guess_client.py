"""A deployed agent that guesses numbers, and reports whether it won. It only knows OpenAI's client.

rlanything serve-policy guess --learn --out runs/served --learn-every 10
python examples/guess_client.py http://127.0.0.1:8000
"""

import random
import sys
import time

import httpx2
import openai

RULE = "Answer with a thought, then > and one action."


def play(client, secret, tries=4):
    """Returns the id of the last answer, and whether the number was guessed."""
    task = f"Guess a number between 1 and 8 in {tries} tries."
    messages = [{"role": "user", "content": f"{task}\n{RULE}\nYou have {tries} tries."}]
    last = ""
    for _ in range(tries):
        reply = client.chat.completions.create(model="any name", messages=messages)
        last, said = reply.id, reply.choices[0].message.content
        guess = said.rpartition(">")[2].strip()
        if guess == str(secret):
            return last, True
        hint = "Say a number."
        if guess in map(str, range(1, 9)):
            hint = "Higher." if int(guess) < secret else "Lower."
        messages.append({"role": "assistant", "content": said})
        messages.append({"role": "user", "content": hint})
    return last, False


def games(count, seed):
    """Returns the numbers to guess."""
    rng = random.Random(seed)
    return [rng.randint(1, 8) for _ in range(count)]


def main(address, count=200, seed=7, learns=True):
    """Plays games one after another and returns which were won."""
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=20)
    won = []
    for secret in games(count, seed):
        last, guessed = play(client, secret)
        won.append(guessed)
        if learns:
            report(address, {"id": last, "outcome": 1 if guessed else -1})
    return won


def report(address, outcome):
    """Sends an outcome until it has arrived; sending it twice is harmless."""
    while True:
        try:
            httpx2.post(f"{address}/outcomes", json={"outcomes": [outcome]}).raise_for_status()
            return
        except httpx2.TransportError:
            time.sleep(0.5)


if __name__ == "__main__":
    results = main(sys.argv[1])
    for start in range(0, len(results), 50):
        print(f"games {start + 1} to {start + 50}: {sum(results[start : start + 50])} won")
