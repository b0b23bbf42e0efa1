"""An argument of the wrong type or out of range is one sentence, at once: what was given, and what is expected."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import lotan
from lotan.nn import GAT, GCN, GIN, MLP, GATConv, GCNConv, GINConv, GraphSAGE, SAGEConv

NAN, INF = float("nan"), float("inf")
TORCHS = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])


def _graph() -> lotan.Graph:
    return lotan.Graph.read("digits")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: lotan.Trainer(7, _graph()), r"Trainer got model=7; expected a torch\.nn\.Module"),
        (lambda: lotan.Trainer(GCN(64, 8, 2, 10), 7), r"Trainer got graph=7; expected a lotan\.Graph"),
        (lambda: lotan.Adam(lr="x"), "Adam got lr='x'; expected a finite number"),
        (lambda: lotan.Adam(lr=1e40), "lr=1e[+]40; .*float32's range"),
        (lambda: lotan.Adam(lr=-1.0), "lr=-1.0"),
        (lambda: lotan.Adam(lr=10**400), "lr=1000.*float32's range"),
        (lambda: lotan.TrainerConfig(optimizer=TORCHS), r"optimizer is Adam \( Parameter Group 0 .*\.\.\.; give one"),
        (lambda: lotan.Adam(lr=True), "lr=True"),
        (lambda: lotan.SGD(lr=NAN), "SGD got lr=nan"),
        (lambda: lotan.AdamW(weight_decay="much"), "weight_decay='much'"),
        (lambda: lotan.Adagrad(lr_decay=INF), "lr_decay=inf"),
        (lambda: lotan.Adam(betas=0.9), "betas=0.9; expected two numbers"),
        (lambda: lotan.Adam(betas=(0.9, "x")), "betas='x'"),
        (lambda: lotan.Adam(betas=(0.9, 1.0)), "betas=.*beta parameter at index 1"),
        (lambda: lotan.Adam(amsgrad=1), "amsgrad=1; expected True or False"),
        (lambda: lotan.SGD(nesterov=True), "Nesterov"),
        (lambda: lotan.Adam(groups={"convs.0": 5}), "groups=.*expected a mapping"),
        (lambda: lotan.Adam(groups={"convs.0": {"lr": "x"}}), "lr='x'"),
        (lambda: lotan.Adam(groups={"convs.0": {"momentum": 1.0}}), "momentum"),
        (lambda: lotan.TrainerConfig(class_weights="ab"), "class_weights is 'ab'; expected a list"),
        (lambda: lotan.TrainerConfig(class_weights=[1.0, -1.0]), "of at least 0"),
        (lambda: lotan.TrainerConfig(class_weights=[1.0, NAN]), "finite"),
        (lambda: lotan.TrainerConfig(class_weights=3), "class_weights is 3"),
        (lambda: lotan.TrainerConfig(task="guess"), "unknown task 'guess'; there are classification"),
        (lambda: lotan.TrainerConfig(disable=7), "disable is 7"),
        (lambda: lotan.TrainerConfig(disable=[7]), r"disable is \[7\]"),
        (lambda: lotan.TrainerConfig(disable={"push_down": False}), "disable is {'push_down': False}; give a list"),
        (
            lambda: lotan.Graph.read("digits", undirected="false"),
            "Graph got undirected='false'; expected True or False",
        ),
        (lambda: GCNConv(4, 4, normalize="false"), "GCNConv got normalize='false'"),
        (lambda: GATConv(4, 4, concat="no"), "GATConv got concat='no'"),
        (lambda: SAGEConv(4, 4, project=0), "SAGEConv got project=0"),
        (lambda: GINConv(torch.nn.Linear(2, 2), train_eps="no"), "GINConv got train_eps='no'"),
        (lambda: GCN(4, 8, 2, act_first="no"), "GCN got act_first='no'"),
        (lambda: MLP([4, 8, 2], norm=None, plain_last="no"), "MLP got plain_last='no'"),
        (lambda: lotan.TrainerConfig(monitor=7), "monitor is 7; expected a string"),
        (lambda: lotan.TrainerConfig(master=7), "master is 7"),
        (lambda: lotan.TrainerConfig(checkpoint_dir=7), "checkpoint_dir is 7"),
        (lambda: lotan.TrainerConfig(rgb="no"), "rgb is 'no'; expected True or False"),
        (lambda: GCN(64, -1, 2), "GCN got hidden_channels=-1; expected a whole number of at least 1"),
        (lambda: GCN(64, 8, 0), "GCN got num_layers=0"),
        (lambda: GCN(64, 8, "2"), "GCN got num_layers='2'"),
        (lambda: GCN(64, 8, 2, dropout=2), "GCN got dropout=2; expected a number from 0 to 1"),
        (lambda: GCN(64, 8, 2, dropout=NAN), "dropout=nan"),
        (lambda: GCN(64, 8, 2, act=7), "act=7"),
        (lambda: GCN(64, 8, 2, act="elu", act_kwargs={"slope": 1}), "act='elu' cannot take act_kwargs=.*slope"),
        (lambda: GCN(64, 8, 2, norm=7), "norm=7"),
        (lambda: GraphSAGE(64, 8.5, 2), "hidden_channels=8.5"),
        (lambda: GIN(64, 8, 2, 0), "out_channels=0"),
        (lambda: GAT(64, 8, 2, heads=0), "GAT got heads=0"),
        (lambda: GAT(64, 8, 2, heads="two"), "heads='two'"),
        (lambda: GATConv(4, 4, heads=0), "GATConv got heads=0"),
        (lambda: GATConv(4, 4, dropout=-0.1), "dropout=-0.1"),
        (lambda: GATConv(4, 4, negative_slope="x"), "negative_slope='x'"),
        (lambda: GCNConv(4, -4), "GCNConv got out_channels=-4"),
        (lambda: SAGEConv(4, None), "SAGEConv got out_channels=None"),
        (lambda: GINConv(7), "GINConv got nn=7; expected a module"),
        (lambda: GINConv(torch.nn.Linear(2, 2), eps="x"), "eps='x'"),
        (lambda: MLP([4, 0], norm=None), "channel_list=0"),
        (lambda: MLP(in_channels=4, hidden_channels=4, out_channels=2, num_layers=0, norm=None), "num_layers=0"),
        (lambda: MLP([4, 8, 2], norm=None, dropout=[0.5, 3.0]), "dropout=3.0"),
    ],
)
def test_refused_in_one_sentence(make: Callable[[], object], words: str) -> None:
    with pytest.raises(lotan.LotanError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_what_pyg_and_torch_accept_stays_accepted() -> None:
    model = GAT(np.int64(6), np.int32(8), 2, out_channels=np.int64(3), heads=np.int64(2), dropout=0)
    assert (type(model.in_channels), type(model.convs[0].heads)) == (int, int)
    MLP([4, 8, 2], norm=None, dropout=1)
    GCN(4, 8, 2, dropout=1, act=None, norm=torch.nn.LayerNorm(8))
    lotan.Adam(lr=np.float32(0.01), betas=[0.9, 0.99], weight_decay=0)
    GCNConv(4, 4, normalize=np.bool_(False))
    lotan.TrainerConfig(class_weights=torch.ones(3))
    lotan.TrainerConfig(class_weights=np.ones(3), disable={"push_down"})


def test_a_step_that_overflows_is_told_with_its_epoch() -> None:
    trainer = lotan.Trainer(GCN(64, 4, 1, 10), _graph(), optimizer=lotan.Adam(lr=3e38), epochs=3, progress=False)
    with pytest.raises(lotan.EngineError, match=r"epoch \d: .*[Ll]ower the learning rate") as caught:
        trainer.fit()
    assert "\n" not in str(caught.value)
