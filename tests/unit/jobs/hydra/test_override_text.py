"""Overrides as Hydra's command line spells them: what Hydra reads back is the value, or it was refused."""

from __future__ import annotations

from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobs.hydra.override_text import override_text
from jobs.training.context import BadConfigError

scalars = st.one_of(
    st.integers(),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none(),
    st.text(st.characters(exclude_categories=("Cs",))),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.from_regex(r"[a-z_][a-z_0-9]{0,5}", fullmatch=True), inner, max_size=3),
    ),
    max_leaves=6,
)


def read_back(text: str) -> Any:
    override = OverridesParser.create().parse_override(text)
    assert not override.is_sweep_override()
    return plain(override.value())


def plain(value: Any) -> Any:
    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    return value


def refused(value: Any) -> bool:
    """Whether the value has no spelling: Hydra would compute it, or read it as missing."""
    if isinstance(value, dict):
        return any(key.lower() in ("null", "true", "false", "nan", "inf") for key in value) or any(
            map(refused, value.values())
        )
    if isinstance(value, list):
        return any(map(refused, value))
    return isinstance(value, str) and ("${" in value or value == "???")


@settings(max_examples=150, deadline=None)
@given(values)
@example("\\")
@example("\\'")
@example("it's a \\\\' \"quoted\" thing\\")
@example("line\nbreak\t\r\u2028")
@example("null")
@example("1e5")
@example("a,b")
@example("choice(a,b)")
@example("")
@example(" ")
@example("=x")
@example(["a,b", "]", {"k": "}"}])
@example("; rm -rf ~ $(x) `y`")
@example("x" * 300)
def test_hydra_reads_back_what_was_written(value: Any) -> None:
    if refused(value):
        with pytest.raises(BadConfigError):
            override_text("key", value)
    else:
        assert read_back(override_text("key", value)) == value


@pytest.mark.parametrize(
    "key",
    [
        "a b",
        "a=b",
        "a,b",
        "",
        "+",
        "a..b",
        "a.",
        ".a",
        "a'b",
        "a\nb",
        "a$(x)",
        "../x",
        "a{b}",
        "ä",
        "--help",
        "a#b",
    ],
)
def test_keys_that_are_no_keys_of_hydra_are_refused(key: str) -> None:
    with pytest.raises(BadConfigError) as caught:
        override_text(key, 1)
    assert caught.value.hint


@pytest.mark.parametrize(
    "key",
    [
        "task",
        "experiment.lr",
        "+experiment.x.y",
        "++a",
        "model@critic_model",
        "model/layers@model.layers.l1",
        "a-b",
    ],
)
def test_keys_of_hydra_are_taken(key: str) -> None:
    override = OverridesParser.create().parse_override(override_text(key, "mlp"))
    assert override.value() == "mlp"


def test_deletion() -> None:
    assert override_text("~experiment.x", None) == "~experiment.x"


@pytest.mark.parametrize(
    "text", ["${oc.env:HOME}", "a${b", "${a.b} and ${c:d}", "\\${a.b}", "${}", "${a:${b}}"]
)
def test_values_that_hydra_would_compute_are_refused(text: str) -> None:
    with pytest.raises(BadConfigError, match="compute"):
        override_text("key", text)


def test_references_to_other_keys_are_taken() -> None:
    assert read_back(override_text("key", "${experiment.max_n_frames}")) == "${experiment.max_n_frames}"
