"""Steps with named items: each is saved and restored by its name, and only what is asked for is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.same import assert_same

import storax

PARAMS = {"w": np.arange(3000.0), "b": [np.ones(3), 2]}
OPTIMIZER = {"mu": np.zeros((20, 30)), "count": 4}
CONFIG = {"lr": 0.1, "layers": [1, 2], "name": None}


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Any]:
    with storax.CheckpointManager(tmp_path) as manager:
        manager.save(
            1,
            args=storax.args.Composite(
                params=storax.args.StandardSave(PARAMS),
                optimizer=storax.args.StandardSave(OPTIMIZER),
                config=storax.args.JsonSave(CONFIG),
            ),
            metrics={"loss": 1.0},
        )
        manager.wait_until_finished()
        yield manager


def test_all_items_come_back(manager: Any):
    found = manager.restore(1)
    assert set(found) == {"params", "optimizer", "config"}
    assert_same(found["params"], PARAMS)
    assert_same(found["optimizer"], OPTIMIZER)
    assert found["config"] == CONFIG


def test_the_result_answers_by_name_by_attribute_and_as_a_mapping(manager: Any):
    found = manager.restore(1)
    assert found["config"] is found.config
    assert "params" in found
    assert "metrics" not in found
    assert "nothing" not in found
    assert sorted(found) == ["config", "optimizer", "params"]
    assert len(found) == 3
    assert {name for name, _ in found.items()} == set(found.keys()) == set(found)
    assert len(list(found.values())) == 3
    with pytest.raises(KeyError, match="nothing"):
        found["nothing"]
    with pytest.raises(AttributeError, match="nothing"):
        _ = found.nothing


def test_only_the_items_that_are_named_are_read(manager: Any, monkeypatch: pytest.MonkeyPatch):
    opened: list[str] = []
    real = os.open

    def noting(path: Any, *rest: Any, **more: Any) -> int:
        opened.append(os.fsdecode(path))
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", noting)
    target = jax.tree.map(lambda x: x, PARAMS)
    found = manager.restore(1, args=storax.args.Composite(params=storax.args.StandardRestore(target)))
    monkeypatch.undo()
    assert list(found) == ["params"]
    assert_same(found.params, PARAMS)
    assert any("/params/" in path for path in opened)
    assert [path for path in opened if "/optimizer" in path or "/config" in path] == []


def test_damage_to_an_item_that_is_not_asked_for_does_not_matter(manager: Any):
    for file in (manager.directory / "1" / "optimizer").rglob("*"):
        if file.is_file():
            file.write_bytes(b"damaged")
    args = storax.args.Composite(params=storax.args.StandardRestore(), config=storax.args.JsonRestore())
    found = manager.restore(1, args=args)
    assert_same(found.params, PARAMS)
    assert found.config == CONFIG
    with pytest.raises(storax.StoraxError, match="optimizer"):
        manager.restore(1)


def test_a_missing_item_is_named_with_those_that_there_are(manager: Any):
    args = storax.args.Composite(parms=storax.args.StandardRestore())
    for kind in (storax.ItemNotFound, FileNotFoundError, KeyError):
        with pytest.raises(kind, match=r"parms.*config, optimizer, params"):
            manager.restore(1, args=args)


def test_an_items_target_decides_its_containers_kinds_and_dtypes(manager: Any):
    target = {"w": jnp.zeros(3000, jnp.float32), "b": (np.zeros(3, np.float32), 0)}
    wish = storax.args.Composite(params=storax.args.StandardRestore(target))
    found = manager.restore(1, args=wish).params
    assert isinstance(found["w"], jax.Array)
    assert found["w"].dtype == jnp.float32
    assert np.array_equal(found["w"], PARAMS["w"].astype(np.float32))
    assert isinstance(found["b"], tuple)
    assert found["b"][0].dtype == np.float32


def test_metadata_of_items(manager: Any):
    found = manager.item_metadata(1)
    assert set(found) >= {"params", "optimizer", "config"}
    assert found.params["w"].shape == (3000,)
    assert set(found["optimizer"]) == {"mu", "count"}
    assert found.config is None
    assert manager.metrics(1) == {"loss": 1.0}


def test_every_item_can_be_loaded_by_its_path(manager: Any):
    assert_same(storax.load(manager.directory / "1" / "params"), PARAMS)
    whole = storax.load(manager.directory / "1")
    assert_same(whole["optimizer"], OPTIMIZER)
    assert whole["config"] == CONFIG


@pytest.mark.parametrize("name", ["metrics", "a/b", "..", ".hidden", ""])
def test_names_that_cannot_be_items_are_refused(tmp_path: Path, name: str):
    with (
        storax.CheckpointManager(tmp_path / "run") as manager,
        pytest.raises((storax.BadOption, ValueError), match="item"),
    ):
        manager.save(1, args=storax.args.Composite(**{name: storax.args.StandardSave(PARAMS)}))
    assert [path.name for path in (tmp_path / "run").iterdir()] == []


def test_orbax_restores_the_items(manager: Any):
    import orbax.checkpoint as ocp

    with ocp.CheckpointManager(
        manager.directory, options=ocp.CheckpointManagerOptions(read_only=True)
    ) as theirs:
        found = theirs.restore(
            1,
            args=ocp.args.Composite(params=ocp.args.StandardRestore(PARAMS), config=ocp.args.JsonRestore()),
        )
        assert_same(found["params"], PARAMS)
        assert found["config"] == CONFIG
        assert theirs.metrics(1) == {"loss": 1.0}
