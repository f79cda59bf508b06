"""Every error this package raises on purpose.

BrorlError
├── ConfigError (ValueError)      a setting is missing, unknown, impossible or contradictory
├── DataError (ValueError)        a data file, a recorded file or a row of one cannot be used
├── ShapeError (ValueError)       an array has the wrong shape, dtype or range
├── PolicyError (ValueError)      a model or tokenizer cannot be loaded or is not supported
├── EngineError (RuntimeError)    a rollout engine failed or answered nonsense
├── VerifierError (RuntimeError)  a verifier or the sandbox broke; never the model's fault
├── RunError (RuntimeError)       a run cannot go on: non-finite loss, disk full, exhausted data
└── Interrupted (RuntimeError)    the user asked to stop; what was done is saved

A message says what was required, what came, and where. The command line turns the first four
into exit status 2, EngineError, VerifierError and RunError into 3, Interrupted into 130.
"""


class BrorlError(Exception):
    """Base of the tree above; catch it to catch everything we raise."""


class ConfigError(BrorlError, ValueError):
    """A setting is missing, unknown, impossible or contradictory."""


class DataError(BrorlError, ValueError):
    """A data file, a recorded file or one of their rows cannot be used."""


class ShapeError(BrorlError, ValueError):
    """An array has the wrong shape, dtype or range."""


class PolicyError(BrorlError, ValueError):
    """A model or tokenizer cannot be loaded, or is of a kind that is not supported."""


class EngineError(BrorlError, RuntimeError):
    """A rollout engine failed or broke its contract."""


class VerifierError(BrorlError, RuntimeError):
    """A verifier or the sandbox itself broke. A wrong answer is a Verdict, not an error."""


class RunError(BrorlError, RuntimeError):
    """A run cannot go on, for a reason that is not its settings. It is resumable."""


class Interrupted(BrorlError, RuntimeError):
    """The user asked to stop; everything up to the last finished step is saved."""
