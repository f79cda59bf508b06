"""brorl: reinforcement learning with verifiable rewards and wide rollouts."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from brorl.train.api import resume as resume
    from brorl.train.api import train as train

__all__ = ["__version__", "resume", "train"]


def __getattr__(name: str) -> Any:
    """Import `train` and `resume` on first use: `import brorl` needs neither torch nor a second."""
    if name == "train":
        from importlib import import_module

        return import_module("brorl.train")  # callable; see there
    if name == "resume":
        from brorl.train.api import resume

        return resume
    raise AttributeError(f"module 'brorl' has no attribute {name!r}")
