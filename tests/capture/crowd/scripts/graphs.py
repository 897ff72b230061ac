"""Graph networks: python graphs.py minibatches|whole_graph."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from true_steps import seed_everything, true_step


@dataclass
class Graph:
    x: Tensor  # [nodes, 8]
    edges: Tensor  # [2, edges]
    y: Tensor
    batch: Tensor  # the graph of each node

    def to(self, device: str) -> Graph:
        return Graph(*(part.to(device) for part in (self.x, self.edges, self.y, self.batch)))


class Molecules(Dataset[Graph]):
    def __len__(self) -> int:
        return 480

    def __getitem__(self, index: int) -> Graph:  # planted
        time.sleep(0.002)  # planted
        nodes = 4 + index % 5
        edges = torch.stack([torch.arange(nodes), torch.arange(nodes).roll(1)])
        return Graph(torch.ones(nodes, 8) * index / 480, edges, torch.tensor([index % 2]), torch.zeros(nodes).long())


def collate(graphs: list[Graph]) -> Graph:
    """One graph of several, which are not connected."""
    sizes = torch.tensor([len(graph.x) for graph in graphs])
    starts = sizes.cumsum(0) - sizes
    return Graph(
        torch.cat([graph.x for graph in graphs]),
        torch.cat([graph.edges + start for graph, start in zip(graphs, starts, strict=True)], dim=1),
        torch.cat([graph.y for graph in graphs]),
        torch.repeat_interleave(torch.arange(len(graphs)), sizes),
    )


class Convolution(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.own, self.neighbors = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        gathered = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
        return functional.relu(self.own(x) + self.neighbors(gathered))


def minibatches() -> None:
    layers = nn.ModuleList([Convolution(8, 16), Convolution(16, 16)])
    head = nn.Linear(16, 2)
    optimizer = torch.optim.Adam([*layers.parameters(), *head.parameters()], lr=0.01)
    for index, graph in enumerate(DataLoader(Molecules(), batch_size=8, shuffle=True, collate_fn=collate)):
        graph = graph.to("cpu")
        x = graph.x
        for layer in layers:
            x = layer(x, graph.edges)
        pooled = torch.zeros(8, 16).index_add(0, graph.batch, x)
        loss = functional.cross_entropy(head(pooled), graph.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        true_step()
        if index % 20 == 0:
            print(f"loss {loss.item():.6f}")


def whole_graph() -> None:
    """All nodes in every step, and a test after each: no loader."""
    nodes, edges = torch.randn(500, 8), torch.randint(0, 500, (2, 2000))
    labels, known = torch.randint(0, 4, (500,)), torch.rand(500) < 0.3
    first, second = Convolution(8, 16), Convolution(16, 4)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01, weight_decay=5e-4)

    def predict() -> Tensor:
        return second(first(nodes, edges), edges)

    for epoch in range(60):
        first.train()
        optimizer.zero_grad()
        loss = functional.cross_entropy(predict()[known], labels[known])
        loss.backward()
        optimizer.step()
        true_step()
        first.eval()
        with torch.no_grad():
            accuracy = (predict().argmax(1) == labels)[~known].float().mean().item()
        if epoch % 20 == 0:
            print(f"Epoch: {epoch:03d}, Loss: {loss.item():.6f}, Test: {accuracy:.4f}")


if __name__ == "__main__":
    seed_everything()
    {kind.__name__: kind for kind in (minibatches, whole_graph)}[sys.argv[1]]()
