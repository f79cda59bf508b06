"""Writing that a kill or a full disk cannot tear."""

import hashlib
import math
import os

import pytest

from brorl.record.files import file_hash, remove_tree, write_atomic, write_json


def names(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("old", [None, "old"])
def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch, call, old):
    """Attack: the disk is full at the flush or at the rename."""
    path = tmp_path / "a.json"
    if old:
        path.write_text(old)

    def full(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr(os, call, full)
        with pytest.raises(OSError, match="No space"):
            write_atomic(path, "new")
    assert names(tmp_path) == (["a.json"] if old else [])
    assert not old or path.read_text() == old
    write_atomic(path, b"newer")
    assert path.read_bytes() == b"newer"


def test_the_content_is_on_disk_before_the_name(tmp_path, monkeypatch):
    """Policy: flush the file, rename, flush the folder, in this order."""
    done = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda h: (done.append("fsync"), fsync(h)))
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("replace"), replace(a, b)))
    write_atomic(tmp_path / "a", "x")
    assert done == ["fsync", "replace", "fsync"]


def test_json_refuses_what_json_does_not_have(tmp_path):
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="JSON compliant"):
            write_json(tmp_path / "a.json", {"x": value})
    assert names(tmp_path) == []


def test_a_tree_is_renamed_before_it_is_removed(tmp_path, monkeypatch):
    """Attack: a kill in the middle of a removal leaves a hidden name, never half a folder."""
    folder = tmp_path / "step-000001"
    folder.mkdir()
    (folder / "a").write_text("x")
    monkeypatch.setattr("shutil.rmtree", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        remove_tree(folder)
    (left,) = names(tmp_path)
    assert left.startswith(".")


def test_hash_is_sha256_of_the_bytes(tmp_path):
    (tmp_path / "a").write_bytes(b"abc" * 100_000)
    assert file_hash(tmp_path / "a") == hashlib.sha256(b"abc" * 100_000).hexdigest()
