"""A site: trains on its own people; Flower's mod masks what it returns."""

from typing import Any

from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import Context

from secure_sum.task import Net, get_weights, load_data, set_weights, train


class Client(NumPyClient):
    def __init__(self, partition: int) -> None:
        self.data, self.model, self.site = load_data(partition), Net(), partition

    def fit(self, parameters: list[Any], config: Any) -> Any:
        set_weights(self.model, parameters)
        train(self.model, *self.data)
        return get_weights(self.model), len(self.data[1]), {"site": self.site}


def client_fn(context: Context) -> Any:
    return Client(int(context.node_config["partition-id"])).to_client()


app = ClientApp(client_fn=client_fn, mods=[secaggplus_mod])
