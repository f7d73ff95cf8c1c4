"""The words of every error and finding are in one golden file, from which docs/ lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.messages import CATALOGUE, Message, messages, read_catalogue


def test_the_catalogue_has_every_message_of_the_code(update_golden: bool) -> None:
    """After a change: `pytest tests/unit/test_messages.py --update-golden`, and read the difference."""
    found = messages("orchestrator", "jobs")
    if update_golden:
        CATALOGUE.write_text("".join(map(str, found)))
    assert read_catalogue() == found


def test_a_message_is_found_with_what_to_type_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code.py").write_text(
        "class OwnError(OrchestrateError): ...\n"
        "def fail(sweep, many):\n"
        "    hint = f'write {sweep.name}'\n"
        "    text = f'found {many} sweeps, ' f'expected {sweep.path}{more}'\n"
        "    raise OwnError(text if many else 'no sweep is here', hint=hint)\n"
        "def pass_on(error):\n"
        "    raise OwnError(str(error))\n"
    )
    monkeypatch.setattr("tests.messages.ROOT", tmp_path)
    assert messages(".") == [
        Message("OwnError", "found MANY sweeps, expected PATH…", "write SWEEP"),
        Message("OwnError", "no sweep is here", "write SWEEP"),
    ]
