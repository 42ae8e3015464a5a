"""The server's side of the app, with central differential privacy, which overheard records."""

from fedavg import SITES, server_app
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, Strategy

from clipped import task


def defended(plain: Strategy) -> Strategy:
    return DifferentialPrivacyClientSideFixedClipping(plain, 0.01, 0.1, SITES)


app = server_app(task, rounds=3, defended=defended)
