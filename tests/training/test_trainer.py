"""The Trainer on the local engine, against PyG and plain torch."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn import functional

import lotan
from lotan.cli import main
from lotan.engines.local.engine import LocalEngine
from lotan.errors import ConfigurationError, EngineError, PassLostError
from lotan.memory.watch import MEMORY_KEYS
from lotan.results.report import BYTES_KEYS, write_report
from lotan.results.run import Run
from lotan.results.trained_model import load
from lotan.training.checkpoint import CheckpointError, claimed
from lotan.training.progress import Progress

VERTICES, WIDTH, CLASSES = 60, 8, 3
LossFunction = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Data:
    """A random graph, for Lotan and for PyG."""

    def __init__(self, label: str = "classes") -> None:
        generator = np.random.default_rng(0)
        self.x = generator.normal(size=(VERTICES, WIDTH)).astype(np.float32)
        self.edge_index = generator.integers(0, VERTICES, size=(2, 240))
        self.label = {
            "classes": generator.integers(0, CLASSES, size=VERTICES),
            "labels": generator.integers(0, 2, size=(VERTICES, CLASSES)).astype(np.float32),
            "targets": generator.normal(size=(VERTICES, CLASSES)).astype(np.float32),
        }[label]
        self.split = generator.integers(-1, 3, size=VERTICES).astype(np.int8)
        self.graph = lotan.Graph.from_arrays(self.x, *self.edge_index, label=self.label, split=self.split)

    def logits(self, model: torch.nn.Module) -> torch.Tensor:
        return model(torch.from_numpy(self.x), torch.from_numpy(self.edge_index))

    def rows(self, split: int) -> torch.Tensor:
        return torch.from_numpy(np.flatnonzero(self.split == split))


def _pair(kind: str = "GCN", dropout: float = 0.0, **arguments: Any) -> tuple[torch.nn.Module, torch.nn.Module]:
    """The same model twice: Lotan's and PyG's, with equal weights."""
    torch.manual_seed(0)
    arguments = {"in_channels": WIDTH, "hidden_channels": 16, "num_layers": 2, "out_channels": CLASSES, **arguments}
    ours = getattr(lotan.nn, kind)(dropout=dropout, **arguments)
    theirs = getattr(pyg, kind)(dropout=dropout, **arguments)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def _fit(model: torch.nn.Module, data: Data, **options: Any) -> Run:
    settings = {"engine": "local", "progress": False, "optimizer": lotan.Adam(lr=0.01), **options}
    return lotan.Trainer(model, data.graph, **settings).fit()


def _curve(model: torch.nn.Module, data: Data, loss_function: LossFunction, epochs: int) -> list[float]:
    """Losses of the training loop everyone writes."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rows, label = data.rows(0), torch.from_numpy(data.label)
    losses = []
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = loss_function(data.logits(model)[rows], label[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _losses(run: Run) -> list[float]:
    return [entry["loss"] for entry in run.history]


@pytest.mark.parametrize("kind", ["GCN", "GraphSAGE", "GIN", "GAT", "MLP"])
def test_loss_curve_equals_that_of_pyg(kind: str) -> None:
    data = Data()
    ours, theirs = _pair(kind, **({"norm": None} if kind == "MLP" else {}))  # their default mixes rows
    run = _fit(ours, data, epochs=20, eval_every=0)
    assert _losses(run) == pytest.approx(_curve(theirs, data, functional.cross_entropy, 20), rel=1e-4)
    for (name, left), (_, right) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize(
    ("label", "task", "loss_function", "metric"),
    [
        ("labels", "multilabel", functional.binary_cross_entropy_with_logits, "micro_f1"),
        ("targets", "regression", functional.mse_loss, "mse"),
    ],
)
def test_other_tasks_equal_torch(label: str, task: str, loss_function: LossFunction, metric: str) -> None:
    data = Data(label)
    ours, theirs = _pair()
    run = _fit(ours, data, epochs=10)
    assert _losses(run) == pytest.approx(_curve(theirs, data, loss_function, 10), rel=1e-4)
    assert run.report["task"] == task
    assert metric in run.metrics["val"]


def test_class_weights_are_those_of_torch() -> None:
    data, weights = Data(), [0.5, 1.0, 3.0]
    ours, theirs = _pair()
    run = _fit(ours, data, epochs=10, class_weights=weights)
    weighted = lambda logits, label: functional.cross_entropy(logits, label, torch.tensor(weights))  # noqa: E731
    assert _losses(run) == pytest.approx(_curve(theirs, data, weighted, 10), rel=1e-4)


def test_multilabel_class_weights_are_those_of_torch() -> None:
    data, weights = Data("labels"), [0.5, 1.0, 3.0]
    ours, theirs = _pair()
    run = _fit(ours, data, epochs=10, class_weights=weights)

    def weighted(logits: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return functional.binary_cross_entropy_with_logits(logits, label, torch.tensor(weights))

    assert _losses(run) == pytest.approx(_curve(theirs, data, weighted, 10), rel=1e-4)


def test_general_plan_and_rules_switched_off_give_the_same_curve() -> None:
    data = Data()
    curves = [
        _losses(_fit(_pair("GAT")[0], data, epochs=5, **options))
        for options in ({}, {"plan": "general"}, {"disable": ["lift_message"]}, {"rgb": False, "plan": "general"})
    ]
    for curve in curves[1:]:
        assert curve == pytest.approx(curves[0], rel=1e-5)


def test_a_parameter_that_the_loss_does_not_reach_stays() -> None:
    class WithSpare(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.spare = _pair()[0], torch.nn.Linear(3, 3)

        def forward(self, x: torch.Tensor, graph: Any) -> torch.Tensor:
            return self.model(x, graph)

    model = WithSpare()
    before = model.spare.weight.detach().clone()
    _fit(model, Data(), epochs=2, optimizer=lotan.AdamW(lr=0.1, weight_decay=0.5))
    assert torch.equal(model.spare.weight, before)
    assert model.spare.weight.grad is None


def test_a_frozen_parameter_stays() -> None:
    model = _pair()[0]
    frozen = next(model.parameters())
    frozen.requires_grad_(False)
    before = frozen.detach().clone()
    _fit(model, Data(), epochs=2)
    assert torch.equal(frozen, before)


def test_early_stopping_and_the_best_weights() -> None:
    data = Data()
    ours, theirs = _pair()
    run = _fit(ours, data, epochs=200, patience=5, optimizer=lotan.Adam(lr=0.05))
    scores = [entry["metrics"]["val"]["accuracy"] for entry in run.history]
    assert len(run.history) == run.best_epoch + 5 < 200
    assert run.best_epoch == int(np.argmax(scores)) + 1
    theirs.load_state_dict(ours.state_dict())
    rows = data.rows(1)
    hits = data.logits(theirs.eval())[rows].argmax(1) == torch.from_numpy(data.label)[rows]
    assert hits.double().mean().item() == pytest.approx(max(scores))
    assert run.metrics["val"]["accuracy"] == max(scores)


def test_best_weights_are_restored_without_patience() -> None:
    data = Data()
    ours = _pair()[0]
    run = _fit(ours, data, epochs=30, optimizer=lotan.Adam(lr=0.05), monitor="loss")
    assert run.best_epoch < 30  # it overfits
    again = _pair()[0]
    _fit(again, data, epochs=run.best_epoch, optimizer=lotan.Adam(lr=0.05), monitor="loss")
    for left, right in zip(ours.parameters(), again.parameters(), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize(("every", "evaluated"), [(0, [5]), (2, [2, 4, 5]), (1, [1, 2, 3, 4, 5])])
def test_evaluation_every_so_many_epochs_and_at_the_end(every: int, evaluated: list[int]) -> None:
    run = _fit(_pair()[0], Data(), epochs=5, eval_every=every)
    assert [entry["epoch"] for entry in run.history if "metrics" in entry] == evaluated
    assert set(run.metrics) == {"train", "val", "test"}


def test_same_seed_same_weights_other_seed_other_dropout() -> None:
    states = [_trained_state(seed) for seed in (0, 0, 1)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not all(torch.equal(states[0][name], states[2][name]) for name in states[0])


def test_same_weights_wherever_the_features_lie() -> None:
    """As after reading them from a file again: matrix products differ in the last bit by alignment."""
    data = Data()
    losses = []
    for offset in range(0, 64, 4):
        memory = np.empty(data.x.nbytes + 128, dtype=np.uint8)
        start = -memory.ctypes.data % 64 + offset
        x = memory[start : start + data.x.nbytes].view(np.float32).reshape(data.x.shape)
        x[:] = data.x
        data.graph = lotan.Graph.from_arrays(x, *data.edge_index, label=data.label, split=data.split)
        assert x.ctypes.data % 64 == offset
        losses.append(_losses(_fit(_pair("MLP", norm=None, hidden_channels=3)[0], data, epochs=2, eval_every=0)))
    assert all(loss == losses[0] for loss in losses)


def _trained_state(seed: int) -> dict[str, torch.Tensor]:
    model = _pair(dropout=0.5)[0]
    _fit(model, Data(), epochs=3, seed=seed)
    return model.state_dict()


@pytest.mark.parametrize("losses", [1, 2])
@pytest.mark.parametrize("before", [0, 2], ids=["computed once", "second epoch"])
def test_a_pass_that_was_lost_runs_again_from_the_same_weights(
    before: int, losses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first pass computes what no epoch changes, as the graph is loaded; so does one before an epoch runs again."""
    data, finish = Data(), LocalEngine.finish
    ours, _ = _pair(dropout=0.5)
    state = copy.deepcopy(ours.state_dict())
    straight = _fit(ours, data, epochs=3, eval_every=0)
    left, passes = [losses], [0]

    def lose(engine: LocalEngine, kept: Any) -> Any:
        passes[0] += 1
        if passes[0] > before and left[0]:
            left[0] -= 1
            raise PassLostError("an executor took its rows with it")
        return finish(engine, kept)

    monkeypatch.setattr(LocalEngine, "finish", lose)
    ours.load_state_dict(state)
    again = _fit(ours, data, epochs=3, eval_every=0)
    assert left == [0]
    assert _losses(again) == _losses(straight)


def test_a_diverging_run_says_so() -> None:
    with pytest.raises(EngineError, match=r"epoch \d+: the loss is .*lower the learning rate"):
        _fit(_pair()[0], Data(), epochs=50, optimizer=lotan.SGD(lr=1e30))


@pytest.mark.parametrize("split", [None, 0], ids=["with validation", "training vertices alone"])
def test_a_last_step_that_diverges_gives_no_model(split: int | None) -> None:
    data = Data()
    if split is not None:
        data.graph = lotan.Graph.from_arrays(data.x, *data.edge_index, data.label, np.full(VERTICES, split))
    with pytest.raises(EngineError, match=r"epoch 1: the loss is .* after the step"):
        _fit(_pair()[0], data, epochs=1, optimizer=lotan.SGD(lr=1e38))


class TestResume:
    def test_equals_the_straight_run(self, tmp_path: Path) -> None:
        straight, resumed = _pair(dropout=0.5)[0], _pair(dropout=0.5)[0]
        optimizer = lotan.Adam(lr=0.01, weight_decay=1e-3)
        run = _fit(straight, Data(), epochs=6, checkpoint_dir=tmp_path / "a", optimizer=optimizer)
        _fit(resumed, Data(), epochs=3, checkpoint_dir=tmp_path / "b", optimizer=optimizer)
        other = _pair(dropout=0.5)[0]  # its weights come from the checkpoint
        torch.nn.init.zeros_(next(other.parameters()))
        again = _fit(other, Data(), epochs=6, checkpoint_dir=tmp_path / "b", optimizer=optimizer, resume=True)
        assert _losses(again) == _losses(run)
        assert_same_checkpoint(tmp_path / "a" / "last.pt", tmp_path / "b" / "last.pt")
        for left, right in zip(straight.parameters(), other.parameters(), strict=True):
            assert torch.equal(left, right)

    def test_starts_anew_where_there_is_nothing(self, tmp_path: Path) -> None:
        run = _fit(_pair()[0], Data(), epochs=2, checkpoint_dir=tmp_path, resume=True)
        assert len(run.history) == 2

    def test_makes_up_for_a_best_checkpoint_that_was_not_kept(self, tmp_path: Path) -> None:
        _fit(_pair()[0], Data(), epochs=1, checkpoint_dir=tmp_path)
        (tmp_path / "best.pt").unlink()
        _fit(_pair()[0], Data(), epochs=1, checkpoint_dir=tmp_path, resume=True)
        assert_same_checkpoint(tmp_path / "last.pt", tmp_path / "best.pt")

    def test_of_a_finished_run_only_reports(self, tmp_path: Path) -> None:
        first = _fit(_pair()[0], Data(), epochs=3, checkpoint_dir=tmp_path)
        again = _fit(_pair()[0], Data(), epochs=3, checkpoint_dir=tmp_path, resume=True)
        assert again.metrics == first.metrics
        assert again.history == first.history

    def test_to_end_with_an_epoch_that_was_not_to_be_the_last(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As where a run was stopped, and the epochs it had done are found to be enough."""

        def interrupt(_: Progress, entry: dict[str, Any]) -> None:
            if entry["epoch"] == 2:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Progress, "epoch", interrupt)
            with pytest.raises(KeyboardInterrupt):
                _fit(_pair()[0], Data(), epochs=9, eval_every=0, checkpoint_dir=tmp_path)
        straight = _fit(_pair()[0], Data(), epochs=2, eval_every=0)
        for epochs in (1, 2):
            again = _fit(_pair()[0], Data(), epochs=epochs, eval_every=0, checkpoint_dir=tmp_path, resume=True)
            assert (again.best_epoch, again.metrics) == (2, straight.metrics)

    def test_keeps_others_out_of_its_directory(self, tmp_path: Path) -> None:
        with claimed(tmp_path), pytest.raises(CheckpointError, match="another run writes its checkpoints to"):
            _fit(_pair()[0], Data(), epochs=1, checkpoint_dir=tmp_path)
        _fit(_pair()[0], Data(), epochs=1, checkpoint_dir=tmp_path)
        _fit(_pair()[0], Data(), epochs=2, checkpoint_dir=tmp_path, resume=True)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"seed": 7}, "seed was '0' and is now '7'"),
            ({"optimizer": lotan.SGD()}, "optimizer was"),
            ({"plan": "general"}, "plan was 'auto' and is now 'general'"),
        ],
    )
    def test_of_a_different_run_is_refused(self, tmp_path: Path, change: dict[str, Any], message: str) -> None:
        _fit(_pair()[0], Data(), epochs=1, checkpoint_dir=tmp_path)
        with pytest.raises(CheckpointError, match=message):
            _fit(_pair()[0], Data(), epochs=2, checkpoint_dir=tmp_path, resume=True, **change)

    def test_class_weights_are_compared_as_numbers(self, tmp_path: Path) -> None:
        first = _fit(_pair()[0], Data(), epochs=1, checkpoint_dir=tmp_path, class_weights=[1.0, 0.5, 0.25])
        weights = torch.tensor([1.0, 0.5, 0.25])
        again = _fit(_pair()[0], Data(), epochs=1, checkpoint_dir=tmp_path, resume=True, class_weights=weights)
        assert again.metrics == first.metrics
        with pytest.raises(CheckpointError, match="class_weights was"):
            _fit(_pair()[0], Data(), epochs=2, checkpoint_dir=tmp_path, resume=True, class_weights=weights + 1e-6)

    def test_of_a_different_model_or_graph_is_refused(self, tmp_path: Path) -> None:
        _fit(_pair()[0], Data(), epochs=1, checkpoint_dir=tmp_path)
        with pytest.raises(CheckpointError, match="model was"):
            _fit(_pair(hidden_channels=4)[0], Data(), epochs=2, checkpoint_dir=tmp_path, resume=True)
        fewer = Data()
        fewer.graph = lotan.Graph.from_arrays(fewer.x, *fewer.edge_index[:, :-1], label=fewer.label, split=fewer.split)
        with pytest.raises(CheckpointError, match="graph was"):
            _fit(_pair()[0], fewer, epochs=2, checkpoint_dir=tmp_path, resume=True)
        other_split = Data()
        split = other_split.split.copy()
        split[np.flatnonzero(split == 0)[0]] = -1
        other_split.graph = lotan.Graph.from_arrays(
            other_split.x, *other_split.edge_index, label=other_split.label, split=split
        )
        with pytest.raises(CheckpointError, match="graph was"):
            _fit(_pair()[0], other_split, epochs=2, checkpoint_dir=tmp_path, resume=True)

    def test_of_a_graph_with_other_numbers_is_refused(self, tmp_path: Path) -> None:
        _fit(_pair()[0], Data(), epochs=1, checkpoint_dir=tmp_path)
        other = Data()
        features = other.x.copy()
        features[0, 0] += 1
        other.graph = lotan.Graph.from_arrays(features, *other.edge_index, label=other.label, split=other.split)
        with pytest.raises(CheckpointError, match="contents of the graph was"):
            _fit(_pair()[0], other, epochs=2, checkpoint_dir=tmp_path, resume=True)

    def test_after_an_interrupt(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        closed: list[bool] = []
        close, show = LocalEngine.close, Progress.epoch

        def interrupt(progress: Progress, entry: dict[str, Any]) -> None:
            if entry["epoch"] == 3:
                raise KeyboardInterrupt
            show(progress, entry)

        monkeypatch.setattr(LocalEngine, "close", lambda engine: (closed.append(True), close(engine)))
        monkeypatch.setattr(Progress, "epoch", interrupt)
        with pytest.raises(KeyboardInterrupt):
            _fit(_pair(dropout=0.5)[0], Data(), epochs=5, checkpoint_dir=tmp_path / "a")
        assert closed
        monkeypatch.setattr(Progress, "epoch", show)
        _fit(_pair(dropout=0.5)[0], Data(), epochs=5, checkpoint_dir=tmp_path / "a", resume=True)
        _fit(_pair(dropout=0.5)[0], Data(), epochs=5, checkpoint_dir=tmp_path / "b")
        assert_same_checkpoint(tmp_path / "a" / "last.pt", tmp_path / "b" / "last.pt")


def assert_same_checkpoint(left: Path, right: Path) -> None:
    """Equal bit by bit, but for the seconds in the history."""
    first, second = (torch.load(path, weights_only=True) for path in (left, right))
    for content in (first, second):
        for entry in content["history"]:
            del entry["train_seconds"], entry["eval_seconds"]
    _assert_same(first, second)


def _assert_same(left: Any, right: Any) -> None:
    assert type(left) is type(right)
    match left:
        case dict():
            assert list(left) == list(right)
            for key in left:
                _assert_same(left[key], right[key])
        case torch.Tensor():
            assert left.dtype == right.dtype
            assert torch.equal(left, right)
        case _:
            assert left == right


def test_explain_runs_nothing_and_names_the_engine() -> None:
    model = _pair()[0]
    before = copy.deepcopy(model.state_dict())
    trainer = lotan.Trainer(model, Data().graph)
    text = trainer.explain()
    assert "local" in text
    assert "rules that fired" in text
    assert text == trainer.explain(), "free memory and the like would change from one to the next"
    assert "did not fire" in trainer.explain(stage="all")
    assert isinstance(json.loads(trainer.explain(format="json")), dict)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_plan_shows_itself_and_what_an_option_changes() -> None:
    model, graph = _pair()[0], Data().graph
    trainer = lotan.Trainer(model, graph)
    assert repr(trainer.plan) == trainer.explain()
    assert trainer.plan._repr_html_().startswith("<iframe ")
    assert trainer.explain(format="html").startswith("<!doctype html>")
    difference = repr(trainer.plan.diff(lotan.Trainer(model, graph, disable=["push_down"]).plan))
    assert f"{'push_down':<24}{'fired 2x':<24}off" in difference


def test_report_has_all_that_is_promised(tmp_path: Path) -> None:
    run = _fit(_pair()[0], Data(), epochs=3, eval_every=2, seed=5)
    write_report(tmp_path / "report.json", run.report)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["graph"] == {"vertices": VERTICES, "edges": 240, "width": WIDTH, "classes": CLASSES}
    assert report["engine"] == "local"
    assert report["plan"]["rules_fired"]
    assert any("Propagate" in line for line in report["plan"]["physical_operators"]["train"])
    assert [entry["epoch"] for entry in report["epochs"]] == [1, 2, 3]
    assert all({"epoch", "loss", "train_seconds", "eval_seconds"} <= set(entry) for entry in report["epochs"])
    assert ["metrics" in entry for entry in report["epochs"]] == [False, True, True]
    assert all("accuracy" in report["metrics"][split] for split in ("train", "val", "test"))
    assert report["setup_seconds"] > 0
    assert set(report["peak_memory_bytes"]) == set(MEMORY_KEYS)
    assert report["peak_memory_bytes"]["driver"] > 0
    assert report["bytes"] == dict.fromkeys(BYTES_KEYS, 0)
    assert report["transport"] == {"shared": 0, "inline": 0}
    assert report["seed"] == 5
    assert report["versions"]["torch"] == metadata.version("torch")


class TestPredictions:
    def test_are_those_of_the_model(self) -> None:
        data = Data()
        ours, theirs = _pair(dropout=0.5)
        predicted = _fit(ours, data, epochs=3).predict()
        theirs.load_state_dict(ours.state_dict())
        logits = data.logits(theirs.eval()).detach()
        assert list(predicted.columns) == ["id", "prediction", "probability"]
        assert predicted["id"].tolist() == list(range(VERTICES))
        assert predicted["prediction"].tolist() == logits.argmax(1).tolist()
        np.testing.assert_allclose(np.stack(predicted["probability"]), logits.softmax(1), rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("label", ["labels", "targets"])
    def test_of_other_tasks(self, label: str) -> None:
        data = Data(label)
        ours, theirs = _pair()
        predicted = _fit(ours, data, epochs=3).predict()
        theirs.load_state_dict(ours.state_dict())
        logits = data.logits(theirs.eval()).detach()
        found = np.stack(predicted["prediction"])
        if label == "labels":
            np.testing.assert_array_equal(found, (logits > 0).int())
            np.testing.assert_allclose(np.stack(predicted["probability"]), logits.sigmoid(), rtol=1e-4, atol=1e-6)
        else:
            np.testing.assert_allclose(found, logits, rtol=1e-4, atol=1e-5)

    def test_after_save_and_load_need_no_code(self, tmp_path: Path) -> None:
        data = Data()
        run = _fit(_pair("GAT", heads=2)[0], data, epochs=2)
        run.save(tmp_path / "model")
        unlabelled = lotan.Graph.from_arrays(data.x, *data.edge_index)
        predicted = load(tmp_path / "model").predict(unlabelled, engine="local")
        assert predicted.equals(run.predict())
        load(tmp_path / "model").write_predictions(unlabelled, tmp_path / "predictions.parquet", engine="local")
        assert (tmp_path / "predictions.parquet").is_file()
        with pytest.raises(lotan.ModelError, match=r"has a saved model already.*overwrite=True"):
            run.save(tmp_path / "model")
        (tmp_path / "model" / "ids.parquet").write_bytes(b"of another model")
        run.save(tmp_path / "model", overwrite=True)
        assert load(tmp_path / "model").predict(unlabelled, engine="local").equals(predicted)

    def test_and_a_graph_are_not_saved_in_one_folder(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        data = Data()
        run = _fit(_pair()[0], data, epochs=1)
        data.graph.save(tmp_path / "graph")
        run.save(tmp_path / "model")
        with pytest.raises(lotan.ModelError, match="graph has a saved graph"):
            run.save(tmp_path / "graph", overwrite=True)
        (tmp_path / "file").write_text("")
        with pytest.raises(lotan.ModelError, match="is a file, and a model is saved as a directory"):
            run.save(tmp_path / "file", overwrite=True)
        with pytest.raises(lotan.GraphError, match="model has a saved model"):
            data.graph.save(tmp_path / "model", overwrite=True)
        assert main(["train", "--graph", "digits", "--save", str(tmp_path / "graph")]) == 2
        assert "--save" in capsys.readouterr().err

    @pytest.mark.parametrize("name", ["model.json", "weights.pt"])
    def test_of_a_damaged_model_are_refused(self, tmp_path: Path, name: str) -> None:
        _fit(_pair()[0], Data(), epochs=1).save(tmp_path)
        content = (tmp_path / name).read_bytes()
        for damage in (content[: len(content) // 2], b"", b"\xff" * 5000, b"[1]"):
            (tmp_path / name).write_bytes(damage)
            with pytest.raises(
                lotan.ModelError, match=rf"cannot be read: .*{name} \(.* bytes\) is cut short"
            ) as caught:
                load(tmp_path)
            assert "\n" not in str(caught.value)
        (tmp_path / name).unlink()
        with pytest.raises(lotan.ModelError, match="is missing"):
            load(tmp_path)

    def test_of_weights_of_another_model_are_refused(self, tmp_path: Path) -> None:
        _fit(_pair()[0], Data(), epochs=1).save(tmp_path)
        torch.save({"other": torch.ones(1)}, tmp_path / "weights.pt")
        with pytest.raises(lotan.ModelError, match=r"has no convs\.0"):
            load(tmp_path)
        _fit(_pair(hidden_channels=4)[0], Data(), epochs=1).save(tmp_path / "narrow")
        (tmp_path / "weights.pt").write_bytes((tmp_path / "narrow" / "weights.pt").read_bytes())
        with pytest.raises(lotan.ModelError, match=r"convs\.0\.\S+ has shape"):
            load(tmp_path)

    def test_need_features_of_the_trained_width(self) -> None:
        run = _fit(_pair()[0], Data(), epochs=1)
        narrow = lotan.Graph.from_arrays(Data().x[:, :3], *Data().edge_index)
        with pytest.raises(lotan.GraphError, match=r"3 numbers.*in_channels=8"):
            run.model.predict(narrow, engine="local")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epoch": 3}, "unknown setting epoch"),
        ({"storage_dir": "parts\0"}, "storage_dir is 'parts.*has a NUL character; name another place"),
        ({"checkpoint_dir": "~nobody-of-this-name/runs"}, "checkpoint_dir .* a user who does not exist"),
        ({"log_dir": "/".join(["folder"] * 1500)}, "log_dir .* and so on, which has more than 4,000 bytes"),
        ({"storage_dir": "a" * 300}, "storage_dir .* has a name of more than 255 bytes"),
        ({"criterion": "focal"}, "did you mean loss"),
        ({"batch_size": 32}, r"regime=lotan\.MiniBatch"),
        ({"early_stopping": 3}, "did you mean patience"),
        ({"epochs": 0}, "epochs is 0"),
        ({"engine": "spork"}, "unknown engine 'spork'"),
        ({"plan": "best"}, "there is no plan 'best'"),
        ({"patience": 3, "eval_every": 0}, "patience needs evaluations"),
        ({"resume": True}, "resume needs checkpoint_dir"),
        ({"optimizer": "adam"}, "optimizer is 'adam'"),
        ({"disable": "push_down"}, "give a list"),
        ({"workers": 0}, "workers is 0"),
    ],
)
def test_unusable_settings_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        lotan.Trainer(_pair()[0], Data().graph, **options)


def test_an_unknown_metric_to_monitor_is_refused_before_the_first_epoch() -> None:
    with pytest.raises(ConfigurationError, match="f17"):
        _fit(_pair()[0], Data(), epochs=1, monitor="f17")
