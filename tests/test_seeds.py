"""Named streams: frozen values, no overlap, and uniform numbers that do not depend on the split."""

import numpy as np

from brorl.seeds import derive_seed, sample_keys, uniforms


def test_is_frozen():
    """Golden. Old runs must replay: this number changes only with a changelog entry."""
    assert derive_seed(0, "train", 3) == 5684830522523107084


def test_neighbouring_roots_share_nothing():
    a, b = ({derive_seed(r, "task", i) for i in range(2000)} for r in (42, 43))
    assert len(a | b) == 4000


def test_int_and_str_parts_differ():
    assert derive_seed(0, 1) != derive_seed(0, "1")


def scalar_uniform(seed, sample, position):
    """Oracle: SplitMix64 written out on Python integers, one number at a time."""
    word = 2**64 - 1

    def mix(x):
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & word
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & word
        return x ^ (x >> 31)

    golden = 0x9E3779B97F4A7C15
    key = mix((seed + golden * (sample + 1)) & word)
    return (mix((mix(key) + golden * (position + 1)) & word) >> 11) / 2**53


def test_matches_scalar_oracle():
    keys = sample_keys(12345, 3, 5)
    for position in (0, 1, 17, 10**6):
        want = [scalar_uniform(12345, s, position) for s in range(3, 8)]
        assert uniforms(keys, position).tolist() == want


def test_sample_i_is_the_same_in_any_wave():
    whole = sample_keys(7, 0, 512)
    parts = np.concatenate([sample_keys(7, 0, 16), sample_keys(7, 16, 48), sample_keys(7, 64, 448)])
    assert (whole == parts).all()


def test_uniform_in_both_directions():
    """Statistical, fixed seed: mean of 2**18 draws within 4 standard errors, no lag correlation."""
    keys = sample_keys(derive_seed(1, "t"), 0, 512)
    u = np.stack([uniforms(keys, t) for t in range(512)])
    assert abs(u.mean() - 0.5) < 4 * np.sqrt(1 / 12 / u.size)
    for a, b in ((u[1:], u[:-1]), (u[:, 1:], u[:, :-1])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 4 / np.sqrt(a.size)
    assert 0 <= u.min() < u.max() < 1
    assert len(np.unique(u)) == u.size
