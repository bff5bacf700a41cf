"""A small network with two inputs, and its losses. pt2_record.py exports and records it; inputs_test.cpp reads both."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from pt2_runs import MOMENTUM, integers

ROWS, CLASSES, STEPS, RATE = 8, 5, 10, 0.02


class TwoInputs(nn.Module):
    """An image, and some numbers: both also meet before the last layer. The norms have momenta of their own."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 6, 3, padding=1, stride=2), nn.BatchNorm2d(6, momentum=0.2)
        self.hidden, self.norm2 = nn.Linear(5, 6), nn.BatchNorm1d(6, momentum=0.05)
        self.fc = nn.Linear(12, CLASSES)

    def forward(self, image, numbers):
        seen = torch.relu(self.norm(self.conv(image))).mean((2, 3))
        known = torch.relu(self.norm2(self.hidden(numbers)))
        return self.fc(torch.cat([seen * known, known], 1))


def batch():
    image = torch.tensor(integers("twoinputs image", ROWS * 240, 256)).reshape(ROWS, 8, 10, 3).movedim(-1, 1)
    numbers = torch.tensor(integers("twoinputs numbers", ROWS * 5, 256)).reshape(ROWS, 5)
    y = torch.tensor(integers("twoinputs y", ROWS - 1, CLASSES) + [CLASSES - 1])
    return image.double() / 255, numbers.double() / 128 - 1, y


def losses(network, parts):
    """With SGD; parts: the ranks, each of which normalises its rows by itself."""
    optimizer = torch.optim.SGD(network.train().parameters(), RATE, momentum=MOMENTUM)
    out = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for image, numbers, y in zip(*(part.chunk(parts) for part in batch())):
            loss = F.cross_entropy(network(image, numbers), y) / parts
            loss.backward()
            total += float(loss.detach())
        optimizer.step()
        out.append(total)
    return out


def record(path, export):
    """Writes the archive with `export`. The evaluation is behind the ten steps of one rank, with the running statistics."""
    torch.manual_seed(1)
    network = TwoInputs()
    image, numbers, y = batch()
    export(network, (image.float(), numbers.float()), path)
    state = {name: value.clone() for name, value in network.state_dict().items()}
    out = {"pytorch": torch.__version__, "rate": RATE}
    for ranks in (2, 1):
        network.float().load_state_dict(state)
        out[f"{ranks} ranks"] = losses(network.double(), ranks)
    with torch.no_grad():
        out["evaluated"] = float(F.cross_entropy(network.eval()(image, numbers), y))
    return out
