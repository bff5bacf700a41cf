"""Small networks with LSTM, GRU and RNN. pt2_record.py exports them."""
import torch
import torch.nn as nn


class SignalLstm(nn.Module):
    """Two layers in both directions behind a convolution; the last step, and the mean of all steps."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 7, 3, padding=1)
        self.rnn = nn.LSTM(7, 8, num_layers=2, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(32, 5)

    def forward(self, x):
        y, _ = self.rnn(torch.relu(self.conv(x)).transpose(1, 2))
        return self.fc(torch.cat([y[:, -1], y.mean(1)], 1))


class SignalGru(nn.Module):
    """Two layers in both directions without biases, of which only h_n is read, on samples with the steps last."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 9, num_layers=2, bidirectional=True, bias=False, batch_first=True)
        self.fc = nn.Linear(18, 5)

    def forward(self, x):
        _, h = self.rnn(x.permute(0, 2, 1))
        return self.fc(torch.cat([h[-2], h[-1]], dim=1))


class TextLstm(nn.Module):
    """The next token at each position. Steps first: batch_first=False."""

    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.head = nn.Embedding(30, 12), nn.LSTM(12, 16), nn.Linear(16, 30)

    def forward(self, tokens):
        y, _ = self.rnn(self.table(tokens).transpose(0, 1))
        return self.head(y.transpose(0, 1))


class TextGru(nn.Module):
    """Two modules, one after the other, and a sum around the second."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(30, 12), nn.Linear(16, 30)
        self.first = nn.GRU(12, 16, num_layers=2, batch_first=True, dropout=0.0)
        self.second = nn.GRU(16, 16, batch_first=True)

    def forward(self, tokens):
        y, _ = self.first(self.table(tokens))
        return self.head(y + self.second(y)[0])


class SignalCells(nn.Module):
    """The states behind the last step, of both directions and layers, with a first state of zeros that is given."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(3, 8, num_layers=2, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(64, 5)

    def forward(self, x):
        x = x.transpose(1, 2)
        zeros = torch.zeros(4, x.size(0), 8, dtype=x.dtype)
        y, (h, c) = self.rnn(x, (zeros, zeros.clone()))
        return self.fc(torch.cat([h[-2], y[:, 0], c.transpose(0, 1).flatten(1), h[1]], 1))


class SignalRnn(nn.Module):
    """Two layers in both directions with tanh, and their last states."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(3, 8, num_layers=2, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(32, 5)

    def forward(self, x):
        x = x.permute(0, 2, 1)
        y, h = self.rnn(x, torch.zeros(4, x.shape[0], 8, dtype=x.dtype))
        return self.fc(torch.cat([y.mean(1), h[0], h[3]], 1))


class TextRnn(nn.Module):
    """ReLU, steps first, without biases."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(30, 12), nn.Linear(16, 30)
        self.rnn = nn.RNN(12, 16, nonlinearity="relu", bias=False)

    def forward(self, tokens):
        y, _ = self.rnn(self.table(tokens).transpose(0, 1))
        return self.head(y.transpose(0, 1))


# As CASES of pt2_models.py.
CASES = [
    (SignalLstm, 5, [10, 3], 5, 0.1),
    (SignalGru, 5, [9, 3], 5, 0.1),
    (TextLstm, 4, [11], 30, 0.2),
    (TextGru, 4, [8], 30, 0.2),
    (SignalCells, 5, [7, 3], 5, 0.1),
    (SignalRnn, 5, [6, 3], 5, 0.1),
    (TextRnn, 4, [9], 30, 0.1),
]
RUNS = [CASES[0], CASES[3], CASES[4], CASES[6]]  # those of pt2_runs.py
