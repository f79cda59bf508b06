"""The composition task: functions on text, nested to a level; can a policy compose what it knows?

Source: Yuan et al. 2025, "From f(x) and g(x) to f(g(x))", arXiv:2509.25123 (setting only; the
functions and the wording are our own).
"""

from collections.abc import Sequence

from brorl.errors import ConfigError
from brorl.seeds import generator
from brorl.tasks.composition_functions import HELD_OUT, TRAIN, TextFunction
from brorl.tasks.problem import Problem, Split
from brorl.tasks.prompt import fill
from brorl.tasks.text import question_key
from brorl.verify.exact import ExactMatch

MAX_LEVEL = 8
MAX_OUTPUT = 64  # characters; longer results are drawn again
_INPUT = (3, 6)  # letters of the innermost text
_DRAWS = 50  # per problem wanted, before the settings count as exhausted


class CompositionTask:
    """Prompts like "reverse(double(abc))" whose answer is the resulting text.

    Training and warm start use the training functions at `levels`; evaluation uses the functions
    of `eval_functions` at `eval_levels`, in equal parts. Prompts are drawn from named streams and
    no prompt is in two splits; `task` of an evaluation problem tells its level.
    """

    name = "composition"

    def __init__(
        self,
        *,
        seed: int,
        train_size: int,
        eval_size: int,
        warmstart_size: int,
        levels: Sequence[int],
        eval_levels: Sequence[int],
        eval_functions: str,
        prompt: str,
        tagged: bool,
    ) -> None:
        """Check the settings.

        Args:
            seed: >= 0.
            train_size, eval_size, warmstart_size: numbers of problems, >= 0.
            levels: depths of nesting in training, each in 1 ... MAX_LEVEL.
            eval_levels: the same in evaluation.
            eval_functions: "train" or "held_out".
            prompt: template over expression, definitions, level, question.
            tagged: the answer is expected inside <answer> tags.

        Raises:
            ConfigError: a level or a size out of range, an unknown set of functions.
        """
        sizes = {"train": train_size, "eval": eval_size, "warmstart": warmstart_size}
        for key, size in sizes.items():
            if size < 0:
                raise ConfigError(f"task.{key}_size must be >= 0, got {size}")
        for key, wanted in (("levels", levels), ("eval_levels", eval_levels)):
            if not wanted or any(type(n) is not int or not 1 <= n <= MAX_LEVEL for n in wanted):
                raise ConfigError(f"task.{key} must be in 1 ... {MAX_LEVEL}, got {list(wanted)}")
        if eval_functions not in ("train", "held_out"):
            raise ConfigError(f"task.eval_functions must be train or held_out: {eval_functions!r}")
        self._seed, self._sizes, self._prompt = seed, sizes, prompt
        self._levels = {"train": tuple(levels), "eval": tuple(eval_levels)}
        self._eval_functions = TRAIN if eval_functions == "train" else HELD_OUT
        self._verifier = ExactMatch(tagged)
        self._problems: dict[str, tuple[Problem, ...]] = {}

    @property
    def verifier(self) -> ExactMatch:
        return self._verifier

    def problems(self, split: Split) -> Sequence[Problem]:
        """Drawn on the first call.

        Raises:
            ConfigError: fewer different prompts than wanted, or a bad template.
        """
        if not self._problems:
            seen: set[str] = set()
            for each in ("eval", "train", "warmstart"):
                self._problems[each] = tuple(self._draw(each, seen))
        return self._problems[split]

    def _draw(self, split: str, seen: set[str]) -> list[Problem]:
        functions = self._eval_functions if split == "eval" else TRAIN
        levels = self._levels["eval" if split == "eval" else "train"]
        rng = generator(self._seed, "composition", split)
        found: list[Problem] = []
        for _ in range(_DRAWS * self._sizes[split]):
            if len(found) == self._sizes[split]:
                break
            level = levels[len(found) % len(levels)]
            letters = rng.integers(0, 26, size=rng.integers(_INPUT[0], _INPUT[1] + 1))
            text = "".join(chr(97 + int(c)) for c in letters)
            chosen = [list(functions)[int(i)] for i in rng.integers(0, len(functions), size=level)]
            problem = self._problem(split, len(found), functions, chosen, text)
            if problem is not None and question_key(problem.prompt) not in seen:
                seen.add(question_key(problem.prompt))
                found.append(problem)
        if len(found) < self._sizes[split]:
            raise ConfigError(
                f"task.{split}_size is {self._sizes[split]}, but only {len(found)} different "
                f"prompts were found at levels {list(levels)}"
            )
        return found

    def _problem(
        self,
        split: str,
        number: int,
        functions: dict[str, TextFunction],
        chosen: list[str],
        text: str,
    ) -> Problem | None:
        """None where the result is empty or too long."""
        result, expression = text, text
        for name in chosen:
            result, expression = functions[name].apply(result), f"{name}({expression})"
            if len(result) > MAX_OUTPUT:
                return None
        if not result.strip():
            return None
        used = dict.fromkeys(chosen)
        definitions = "\n".join(f"{name}(s) {functions[name].meaning}." for name in used)
        prompt = fill(
            self._prompt,
            {
                "expression": expression,
                "definitions": definitions,
                "level": len(chosen),
                "question": f"What text does {expression} give?",
            },
        )
        row = {"functions": chosen, "text": text, "level": len(chosen)}
        worked = self._verifier.write(result, row)
        name = f"composition/level-{len(chosen)}"
        return Problem(f"composition/{split}/{number}", prompt, result, worked, row, name)
