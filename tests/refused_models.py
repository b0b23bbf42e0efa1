"""Models that cannot be traced. The comment `# here` marks the line that the error has to name, after it what it has to say."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from lotan.nn import MLP, EdgeIndex, GCNConv, MessagePassing, aggregate


class Model(torch.nn.Module):
    """Some parameters to use."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(6, 4)
        self.lin = torch.nn.Linear(6, 4)
        self.table = torch.nn.Parameter(torch.randn(6, 6))
        self.register_buffer("seen", torch.zeros(4))
        self.constant = torch.ones(4)


class BranchOnValues(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        if x.sum() > 0:  # here: depends on values | torch.where
            return self.lin(x)
        return self.conv(x, graph)


class BranchOnParameter(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        if self.table[0, 0] > 0:  # here: depends on values | torch.where
            x = x + 1
        return self.conv(x, graph)


class ItemOfParameter(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.conv(x, graph) * self.table[0, 0].item()  # here: depends on values


class CountsAsNumber(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x) / int(x.shape[0])  # here: number of rows


class LoopOverRows(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return torch.stack([self.lin(row) for row in x])  # here: number of rows


class RecurrentOverRows(Model):
    def __init__(self) -> None:
        super().__init__()
        self.recurrent = torch.nn.LSTM(6, 4)

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.recurrent(x)[0]  # here: one sequence for each row | [num_vertices, 6]


class CountsAsFactor(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x) * x.shape[0]  # here: number of rows


class BranchOnCount(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        if x.shape[0] > 100:  # here: number of rows
            return self.lin(x)
        return self.conv(x, graph)


class BatchNorm(Model):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.SyncBatchNorm(4)

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        x = self.conv(x, graph)
        return self.norm(x)  # here: layer 'norm' | SyncBatchNorm | torch.nn.BatchNorm1d | torch.nn.LayerNorm


class BatchNormFunction(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return F.batch_norm(self.conv(x, graph), None, None, training=True)  # here: batch_norm | torch.nn.LayerNorm


class SoftmaxOverRows(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return torch.softmax(self.conv(x, graph), dim=0)  # here: softmax | dimension 0 | dim=-1


class SoftmaxOfNumbers(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        score = self.lin(x).sum(-1)
        return self.lin(x) * score.softmax(-1)[:, None]  # here: softmax | dimension 0


class BatchNormTwice(Model):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        x = self.norm(self.conv(x, graph))
        return self.norm(x)  # here: layer 'norm' | runs twice | its own layer


class BatchNormOfAnotherWidth(Model):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(5)

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.norm(self.conv(x, graph))  # here: layer 'norm' | width 4 | was made for 5


class BatchNormOfHeads(Model):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(2)

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.norm(self.conv(x, graph).view(-1, 2, 2)).flatten(1)  # here: layer 'norm' | [2, 2] | reshape


class ReturnedMean(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.conv(x, graph).mean(0)  # forward returns a statistic over all vertices


class DropoutOfMean(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x * F.dropout(x.mean(0)))  # here: dropout | statistic over all vertices | element-wise


class VarianceOfAllNumbers(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x / x.var())  # here: var | correction=0


class MeanOfWholeNumbers(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x * x.long().sum(0))  # here: sum | float32 | int64


class ProductOverRows(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x) + x.prod(0).sum()  # here: prod | dimension 0


class CumulativeSum(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x.cumsum(0))  # here: cumsum | dimension 0


class NormOverRows(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(F.normalize(x, dim=0))  # here: dimension 0


class Transposed(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return (self.table @ x.t())[:, :4]  # here: number of rows


class TransposedAttribute(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.table @ x.T  # here: matmul | rows out of the first dimension


class Permuted(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x.view(-1, 2, 3).permute(1, 0, 2).reshape(-1, 6))  # here: mixes the rows | transpose


class Gram(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        x = x.unsqueeze(-1)
        return self.lin(torch.einsum("nik,mik->ni", x, x))  # here: einsum | letter


class Sorted(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x.sort(dim=0)[0])  # here: sort


class TopRows(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x.topk(3, dim=0)[0])  # here: topk


class FirstRow(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x - x[0])  # here: select | dimension 0


class SomeRows(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x[:3])  # here: slice | dimension 0


class MaskedRows(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x[x[:, 0] > 0])  # here: index | columns


class Neighbours(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x[graph.edges().index[0]])  # here: edge_index itself | MessagePassing


class TwiceAsManyRows(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(torch.cat([x, x], dim=0))  # here: cat | dimension 0


class Reshaped(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x).reshape(-1, 2)  # here: reshape | number


class Flattened(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x).flatten()  # here: flatten | number


class Flipped(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x.flip(0))  # here: flip | dimension 0


class Rolled(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x.roll(1))  # here: roll


class RandomNoise(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x + torch.randint_like(x, 3))  # here: randint_like | rand_like


class RandomMask(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x) * torch.bernoulli(torch.sigmoid(self.lin.bias))  # here: bernoulli | belong to rows


class AlphaDropout(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(F.alpha_dropout(x, 0.5, training=True))  # here: alpha_dropout


class DropoutOfParameters(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.conv(x @ F.dropout(self.table, 0.5, training=True), graph)  # here: dropout on a parameter


class Pair(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> tuple[Tensor, Tensor]:
        return self.lin(x), x  # forward returns a tuple of 2 | loss=


class Number(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.table.sum()  # forward returns float32 of shape []


class Cube(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x).view(-1, 2, 2)  # forward returns float32 of shape [num_vertices, 2, 2]


class Doubles(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x).double()  # forward returns float64


class Halves(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x).half().float()  # here: torch.float16 | torch.float32


class InPlaceOnInput(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        x.mul_(2.0)  # here: mul_ | new tensor
        return self.lin(x)


class InPlaceOnColumns(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        x = self.lin(x)
        x[:, 0] = 0.0  # here: new tensor
        return x


class InPlaceOnBuffer(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        self.seen.add_(1.0)  # here: add_ | new tensor
        return self.lin(x) + self.seen


class WrongWidth(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.conv(self.lin(x), graph)  # here: layer 'conv' | width 4 | in_channels is 6


class WrongWidthOfMatrix(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x) @ self.table  # here: multiplies rows of width 4


class Constant(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x) * self.constant  # here: register_buffer


class NoGradient(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        with torch.no_grad():  # here: detach
            y = self.lin(x)
        return y + self.conv(x, graph)


class Embedded(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(F.embedding(x[:, 0].long(), self.table))  # here: embedding


class MessageOfVertices(MessagePassing):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(6))

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.propagate(graph, x)

    def aggregate(self, messages: Tensor, graph: object) -> Tensor:
        return aggregate(self.weight, graph, "sum")  # here: rows of different kinds


class MixedEdgeSets(MessagePassing):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(6))
        self.kept: list[Tensor] = []

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        self.kept = []
        x = self.propagate(graph, x)
        return self.propagate(graph, x * self.weight, "self_loops")

    def message(self, x_j: Tensor) -> Tensor:
        self.kept.append(x_j)
        return x_j + self.kept[0]  # here: rows of different kinds


class VerticesAndEdges(MessagePassing):
    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(6, 6)
        self.rows = torch.zeros(0)

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        self.rows = self.lin(x)
        return self.propagate(graph, x)

    def message(self, x_j: Tensor) -> Tensor:
        return x_j + self.rows  # here: rows of different kinds


class MixingMessage(MessagePassing):
    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(6, 6)

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.propagate(graph, self.lin(x))

    def message(self, x_j: Tensor) -> Tensor:
        return x_j / x_j.norm(dim=0)  # here: dimension 0


class IntegerMessages(MessagePassing):
    def __init__(self) -> None:
        super().__init__("max")
        self.lin = torch.nn.Linear(6, 4)

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(self.propagate(graph, x).float())  # here: messages must be float32 | but got int64

    def message(self, x_j: Tensor) -> Tensor:
        return (10 * x_j).long()


class Failing(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        raise ValueError("out of ideas")  # here: ValueError | out of ideas


class NormalisedPerceptron(Model):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = MLP([6, 5, 4], norm=torch.nn.SyncBatchNorm(5))

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.mlp(x)  # here: layer 'mlp.norms.0' | SyncBatchNorm


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x * 1.0

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return gradient * 2.0


class OwnBackward(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return _Doubled.apply(self.conv(x, graph))  # differs from the model itself | torch.autograd.Function


class Counting(Model):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        self.calls += 1
        return self.lin(x) * self.calls  # forward assigns to calls


class NothingAlongEdges(Model):
    def __init__(self) -> None:
        super().__init__()
        self.narrow, self.wide = torch.nn.Linear(6, 0), torch.nn.Linear(0, 6)

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        x = self.narrow(x)  # here: [num_vertices, 0] | at least one number
        return self.conv(self.wide(F.dropout(x, training=self.training)), graph)


class NothingOut(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.conv(x, graph)[:, :0]  # here: [num_vertices, 0] | at least one number


class NoDimensionOfMovedRows(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x) + x.t().argmax()  # here: argmax | dimension


class GreatestOverMovedRows(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        turned = x.unsqueeze(0).transpose(1, 2)
        return self.lin(x) + turned.max(2).values[:, :4]  # here: along the dimension of the rows


class NormalisedOverMovedRows(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        shape = (x.size(0), 6)
        return self.lin(F.layer_norm(x.unsqueeze(0), shape)[0])  # here: along the dimension of the rows


class MatrixForEachHead(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        heads = x.view(-1, 2, 3).transpose(0, 1).unsqueeze(2)
        made = heads @ self.table[:3, :4].expand(2, 1, 3, 4)  # here: moves the rows out of the first dimension
        return made.squeeze(2).sum(0)


class DotsInEinsum(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        made = torch.einsum("...d,dk->...k", x.unsqueeze(0), self.table)  # here: moves the rows
        return self.lin(made.squeeze(0))


class NothingOfMovedRows(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.lin(x) + x.t()[:0].sum(0)[:, None]  # here: at least one number


class RowsWithRows(Model):
    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        whole = x.unsqueeze(0)
        return self.lin((whole @ whole.mT @ whole).squeeze(0))  # here: different dimensions
