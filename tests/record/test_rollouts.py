"""rollouts/*.parquet: every field of every answer comes back, whatever its text holds."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from brorl.errors import DataError
from brorl.record.rollouts import (
    SCHEMA,
    RolloutRow,
    cut_rollouts,
    read_rollouts,
    rollout_path,
    rollout_steps,
    write_rollouts,
)

ROW = RolloutRow(
    run="r", step=3, born=2, task="t", problem_id="p", group_id="p#7", sample_index=511,
    prompt="rev abc=", gold="cba", prompt_ids=(1, 2), response_ids=np.array([5, 6, 7], np.int32),
    mask=np.ones(3, bool), engine_logprobs=np.array([-0.1, -1e-7, -30.5], np.float32),
    response_length=3, stop="eos", policy_version=12, text="cba", verdict="correct",
    extracted="cba", reason="equal", raw_score=1.0, true_score=0.25, shaped_reward=-0.5,
    advantage=22.583, weight=1.5, kept=True, fate="kept",
)  # fmt: skip
HOSTILE = [
    "",
    "\x00",
    "\ud800",
    "a\udfffb",
    "\u202ehidden",
    "é" * 1000,
    "\r\n,\"'",
    "\U0001f600",
    "NaN",
]


def plain(row):
    """A row as Python values, arrays as lists."""
    values = [v.tolist() if isinstance(v, np.ndarray) else v for v in row]
    return dict(zip(RolloutRow._fields, [list(v) if isinstance(v, tuple) else v for v in values],
                    strict=True))  # fmt: skip


def test_columns_are_the_fields_in_order():
    assert tuple(SCHEMA.names) == RolloutRow._fields


def test_a_row_comes_back_as_it_was(tmp_path):
    write_rollouts(tmp_path, 3, [ROW])
    assert read_rollouts(tmp_path, 3).to_pylist() == [plain(ROW)]


def test_rows_of_unequal_length_and_missing_tokens_keep_their_own(tmp_path):
    bare = ROW._replace(
        prompt_ids=None, response_ids=None, mask=None, engine_logprobs=None, advantage=None,
        gold=None, extracted=None, kept=False,
    )  # fmt: skip
    long = ROW._replace(
        response_ids=np.arange(9, dtype=np.int32), mask=np.ones(9, bool),
        engine_logprobs=np.linspace(-1, 0, 9).astype(np.float32), response_length=9,
    )  # fmt: skip
    rows = [bare, long, bare, ROW, long]
    write_rollouts(tmp_path, 1, rows)
    assert read_rollouts(tmp_path, 1).to_pylist() == [plain(r) for r in rows]
    write_rollouts(tmp_path, 2, [bare, bare])
    assert read_rollouts(tmp_path, 2).to_pylist() == [plain(bare)] * 2


def test_a_step_without_answers_is_an_empty_table(tmp_path):
    write_rollouts(tmp_path, 5, [])
    table = read_rollouts(tmp_path, 5)
    assert (table.num_rows, table.schema) == (0, SCHEMA)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_kept_or_escaped(tmp_path, text):
    """Attack: lone surrogates are not Unicode; they are escaped, everything else is kept."""
    row = ROW._replace(text=text, extracted=text, reason=text, prompt=text, gold=text)
    write_rollouts(tmp_path, 1, [ROW, row])
    back = read_rollouts(tmp_path, 1).to_pylist()[1]
    want = text.encode("utf-8", "backslashreplace").decode()
    assert {back[k] for k in ("text", "extracted", "reason", "prompt", "gold")} == {want}


@examples(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.text(st.characters(), max_size=20), min_size=1, max_size=4))
def test_any_text_is_written(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("any")
    write_rollouts(folder, 1, [ROW._replace(text=t) for t in texts])
    back = read_rollouts(folder, 1, ["text"])["text"].to_pylist()
    assert back == [t.encode("utf-8", "backslashreplace").decode() for t in texts]


def test_readers_name_the_file_and_what_there_is(tmp_path):
    with pytest.raises(DataError, match="no rollouts of step 1; there are none in this run"):
        read_rollouts(tmp_path, 1)
    for step in (2, 5):
        write_rollouts(tmp_path, step, [ROW])
    with pytest.raises(DataError, match="no rollouts of step 3; there are steps 2 to 5"):
        read_rollouts(tmp_path, 3)
    whole = rollout_path(tmp_path, 2).read_bytes()
    for content in (b"", b"PAR1", whole[: len(whole) // 2], whole[:-9]):
        rollout_path(tmp_path, 2).write_bytes(content)
        with pytest.raises(DataError, match=r"step-000002\.parquet: not a rollout file"):
            read_rollouts(tmp_path, 2)


def test_cut_removes_later_steps_and_leftovers(tmp_path):
    for step in (1, 2, 10, 1_234_567):
        write_rollouts(tmp_path, step, [ROW])
    (tmp_path / "rollouts" / ".step-000003.parquet.9.tmp").write_text("half")
    assert rollout_steps(tmp_path) == [1, 2, 10, 1_234_567]
    cut_rollouts(tmp_path, 2)
    assert sorted(p.name for p in (tmp_path / "rollouts").iterdir()) == [
        "step-000001.parquet", "step-000002.parquet",
    ]  # fmt: skip
    cut_rollouts(tmp_path / "nothing", 0)


def test_a_full_disk_leaves_no_file_and_the_older_ones(tmp_path, monkeypatch):
    write_rollouts(tmp_path, 1, [ROW])
    before = rollout_path(tmp_path, 1).read_bytes()

    def full(table, where, **options):
        where.write_bytes(before[:40])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    for step in (1, 2):
        with pytest.raises(OSError, match="No space"):
            write_rollouts(tmp_path, step, [ROW])
    assert [p.name for p in (tmp_path / "rollouts").iterdir()] == ["step-000001.parquet"]
    assert rollout_path(tmp_path, 1).read_bytes() == before
