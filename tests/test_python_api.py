"""What `import brorl` promises: a light import, and functions that stay functions."""

import subprocess
import sys
from importlib import import_module

import pytest

import brorl
from brorl.errors import ConfigError


def test_train_can_be_called_again():
    """Importing a submodule rebinds `brorl.train` to the package: the second call must work too."""
    for _ in range(2):
        with pytest.raises(ConfigError, match="nonesuch"):
            brorl.train("nonesuch")
    import_module("brorl.train.api")
    with pytest.raises(ConfigError, match="nonesuch"):
        brorl.train("nonesuch")
    assert callable(brorl.resume)


def test_import_is_light():
    code = "import brorl, sys; print('torch' in sys.modules, 'pydantic' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = brorl.trian
