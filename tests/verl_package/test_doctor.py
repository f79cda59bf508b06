"""`brorl doctor` says what `brorl launch` would refuse on this machine."""

import socket

import pytest

from brorl.cli import doctor


@pytest.fixture
def versions(monkeypatch):
    found = {"verl": "0.9.1", "ray": "2.60.0"}
    monkeypatch.setattr(doctor, "_version", found.get)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return found


def hints(text):
    return [h for h in doctor.examine()["hints"] if text in h]


def test_nothing_is_said_where_verl_is_right(versions, monkeypatch):
    monkeypatch.setattr(doctor, "_torch", lambda problems: ("2.13", "cuda: H100"))
    assert not hints("verl")
    assert not hints("Ray")
    assert doctor.examine()["ray"] == "2.60.0"


def test_no_verl_another_verl_and_no_ray(versions):
    assert hints("--ray-address of a cluster")  # no CUDA device here
    versions["verl"] = "0.8.0"
    assert hints("starts verl 0.9.1, here is 0.8.0: pip install")
    versions["verl"] = "0.9.1"
    del versions["ray"]
    assert hints("verl needs Ray")
    del versions["verl"]
    assert hints("a cluster through verl")
    assert not hints("verl needs Ray")


def test_an_address_that_does_not_answer(versions, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    assert hints(f"no Ray cluster answers at 127.0.0.1:{port}")
