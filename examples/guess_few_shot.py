"""The game of guess.py for a pretrained model: its judge is shown four judgements first.

make smollm2    # installs the model, then trains the recipe guess-smollm2
"""

from guess import Guess

from rlanything.records import Message

RULE = """Someone guesses a number between 1 and 8. Does the last guess fit the hints before it?
Say \\boxed{1} if it does, \\boxed{-1} if not, and why."""
SHOWN = (
    ("> 5\nHigher.\n> 7\nLower.", "\\boxed{1} 7 is above 5."),
    ("> 3\nLower.\n> 6\nLower.", "\\boxed{-1} 6 is not below 3."),
    ("> 2\nHigher.\n> 6\nLower.\n> 5\nRight.", "\\boxed{1} 5 is above 2 and below 6."),
    ("> 4\nHigher.\n> 4\nHigher.", "\\boxed{-1} 4 is not above 4."),
)


class FewShotGuess(Guess):
    def judge_prompt(self, task, steps):
        lines = [line for s in steps for line in (s.response.strip(), s.next_observation)]
        return shown(RULE, SHOWN, "\n".join(lines))


def shown(rule, examples, question):
    """Returns a chat in which like questions were answered before."""
    chat = [Message("system", rule)]
    for asked, answer in examples:
        chat += [Message("user", asked), Message("assistant", answer)]
    return (*chat, Message("user", question))
